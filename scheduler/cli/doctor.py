"""`doctor`: looks at daemon, store and machine, and says what is wrong and what to do about it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler import __version__
from scheduler.cli.connection import Control
from scheduler.cli.examining import (
    DaemonProcess,
    clock_is_synchronised,
    daemon_process,
    disk_facts,
    has_systemd,
    lingering,
    path_facts,
    unit_is_enabled,
)
from scheduler.cli.findings import Facts, Finding, LingeringProcess, judge
from scheduler.cli.screen import Cell, Screen
from scheduler.cli.session import Session, client_verb, stores_of
from scheduler.cli.shapes import Doctor, DoctorFinding
from scheduler.cli.wording import escape, now
from scheduler.clock import SECOND, Micros
from scheduler.config import paths
from scheduler.errors import ClientTimeout, DaemonUnreachable, Forbidden, NotFound, SchedulerError

if TYPE_CHECKING:
    from scheduler.store.offline import StoreFacts

_BETWEEN_LOOKS: Final[Micros] = SECOND


@click.command("doctor")
@click.option("--state", metavar="DIR", help="The state directory, where it cannot be told from the daemon.")
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="The daemon's scheduler.toml."
)
@client_verb
def doctor_verb(session: Session, state: str | None, config: Path | None) -> int:
    """Look for what is wrong: daemon, permissions, store, disk, clock, files, jobs, processes, unit.

    Each finding names its remedy. Exit code 1 if there is one; notes alone are 0.
    """
    found, looked = _examine(session, state, config)
    findings = list(judge(found))
    faults = [finding for finding in findings if not finding.is_note]
    if session.screen.json_wanted:
        told = [_told(finding) for finding in findings]
        session.screen.record(Doctor(ok=not faults, findings=told, not_looked_at=looked).to_json())
    else:
        _show(session.screen, findings, looked)
    return 1 if faults else 0


def _told(finding: Finding) -> DoctorFinding:
    return DoctorFinding(
        check=finding.check,
        level="note" if finding.is_note else "fault",
        message=finding.message,
        remedy=finding.remedy,
    )


def _show(screen: Screen, findings: Sequence[Finding], not_looked_at: Sequence[str]) -> None:
    for finding in findings:
        cell = Cell("note", "yellow", "i") if finding.is_note else Cell("fault", "red", "✗")
        screen.line(cell, Cell(f"{finding.check}:", "bold"), escape(finding.message))
        screen.line("  remedy:", escape(finding.remedy))
    for what in not_looked_at:
        screen.line(Cell("not looked at:", "dim"), escape(what))
    faults = sum(not finding.is_note for finding in findings)
    if faults:
        screen.line(Cell(f"{faults} fault{'s' if faults > 1 else ''}", "red"))
    else:
        screen.line(Cell("nothing is wrong", "green"))


def _examine(session: Session, state: str | None, config: Path | None) -> tuple[Facts, list[str]]:
    """The facts, and what could not be looked at with the reason."""
    gathered: dict[str, Any] = {"now": now(), "version": __version__, "has_systemd": has_systemd()}
    missing: list[str] = []
    process = _ask(session.control, gathered)
    place = _state_of(session, process, state)
    gathered["is_synchronised"] = clock_is_synchronised()
    if place is None:
        missing.append("the store, its files, disk and left-over processes: its directory is not known here")
    else:
        _look_into(place, gathered, missing, is_down=process is None)
    chosen = config or (process.config if process is not None else None)
    _look_at_files(chosen, place, gathered, is_down=process is None)
    if process is not None:
        gathered["daemon_uid"] = process.uid
        gathered["unit"] = process.unit
        if process.unit is not None:
            gathered["unit_enabled"] = unit_is_enabled(process.unit)
    return Facts(**gathered), missing


def _ask(control: Control, gathered: dict[str, Any]) -> DaemonProcess | None:
    """What the daemon tells is gathered; its process, or None where none answers."""
    try:
        gathered["status"] = control.get("/v1/status").body
        gathered["jobs"] = list(control.pages("/v1/jobs"))
    except (DaemonUnreachable, ClientTimeout, Forbidden) as away:
        gathered["unreachable"] = away.message
        gathered.pop("status", None)
        return None
    return daemon_process(int(gathered["status"].get("pid", 0)))


def _state_of(session: Session, process: DaemonProcess | None, named: str | None) -> Path | None:
    """The state directory: the one named, the one that the daemon has open, or the first that has a store."""
    if named is not None:
        return Path(named).absolute()
    if process is not None:
        return process.state
    from scheduler.store.offline import store_exists

    for place in stores_of(None, session.socket):
        try:
            if store_exists(place):
                return place
        except PermissionError:
            continue
    return None


def _look_into(state: Path, gathered: dict[str, Any], missing: list[str], *, is_down: bool) -> None:
    from scheduler.store.offline import store_facts, store_faults

    gathered["disk"] = disk_facts(state)
    try:
        facts = store_facts(state)
        gathered["wall_seen"] = facts.wall_seen
        gathered["lingering"] = _lingering(state, facts)
        if is_down:
            gathered["store_faults"] = store_faults(state)
        else:
            missing.append("each page of the store (it is checked while no daemon runs)")
    except (Forbidden, NotFound) as closed:
        missing.append(f"the store: {closed.message}")
    except SchedulerError as bad:
        gathered["store_refusal"] = (bad.message, bad.hint or "put a backup there: `schedctl restore FILE`")


def _lingering(state: Path, facts: StoreFacts) -> list[LingeringProcess]:
    """Processes that were left over at two looks: one alone may meet a run that just begins or ends."""
    from scheduler.store.offline import store_facts

    first = list(lingering(facts.store_id, facts.unfinished))
    if not first:
        return []
    threading.Event().wait(_BETWEEN_LOOKS / SECOND)
    again = {process.pid for process in lingering(facts.store_id, store_facts(state).unfinished)}
    return [process for process in first if process.pid in again]


def _look_at_files(
    config: Path | None, state: Path | None, gathered: dict[str, Any], *, is_down: bool
) -> None:
    """Modes of what the daemon reads and keeps, and, where no daemon tells them, the faults of its files."""
    from scheduler.config.check import check
    from scheduler.config.paths import config_file
    from scheduler.config.settings import load_settings

    file = config_file(config, os.environ)
    named = [("configuration file", file.path), ("configuration directory", file.path.parent)]
    try:
        settings = load_settings(file, os.environ)
    except SchedulerError:
        settings = None
    if settings is not None:
        named += [("jobs folder", folder) for folder in settings.jobs]
        named += [("job file", job) for folder in settings.jobs for job in sorted(folder.glob("*.toml"))]
    if state is not None:
        named += [
            ("state directory", state),
            ("store", state / "schedulerd.db"),
            ("control socket", state / paths.SOCKET_NAME),
        ]
    gathered["paths"] = list(path_facts(named))
    if is_down and (config is not None or file.path.exists()):
        gathered["config_faults"] = [str(fault) for fault in check(config, os.environ)]
