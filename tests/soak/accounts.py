"""The accounts after a soak: rows, ledger and what was told are held against each other."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tests.soak.site import PAUSABLE, Site, is_quiet
from tests.support.promises import broken_promises, fires, read_ledger

_RECORDED: Final = ("second", "after", "long", "beside", "flood", "told")
"""Jobs with `on_crash = "record"`: started at most once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The numbers of one site."""

    due: int
    ran: int
    explained: int
    runs: int
    executions: int
    doubles: int
    pauses: int
    lost_pauses: int
    fired_in_pause: int | None
    locked: int
    lost_outcomes: int
    processes: int


def settle_accounts(site: Site) -> Accounts:
    """The daemon came to rest, was stopped in order, and everything was counted."""
    site.free_disk()
    locked = _locked(site)
    _come_to_rest(site)
    site.pauses_hold()
    code = site.daemon.stop(patience=120)
    site.keep_told()
    if code != 0:
        site.wrong.append(f"the last stop ended with {code}")
    time.sleep(1)
    left = site.daemon.descendants()
    if left:
        site.wrong.append(f"processes outlived the daemon: {left}")
    ledger = read_ledger(site.daemon.path("ledger"))
    site.wrong += broken_promises(site.daemon.database, ledger)
    with closing(sqlite3.connect(site.daemon.database)) as db:
        return Accounts(
            **fires(site.daemon.database),
            runs=_number(db, "SELECT count(*) FROM runs WHERE state <> 'skipped'"),
            executions=len(ledger),
            doubles=_doubles(site, db),
            pauses=site.befell["pause_or_resume"],
            lost_pauses=sum(fault.startswith("lost pause") for fault in site.wrong),
            fired_in_pause=_fired_in_pause(site, db),
            locked=locked,
            lost_outcomes=_lost_outcomes(site, db),
            processes=len(left),
        )


def _locked(site: Site) -> int:
    """I7: every job can be run by hand now; how many cannot."""
    locked = 0
    for job in ("second", "again", "after", "beside", "flood", "long", "told", "narrate"):
        reply = site.daemon.ask("POST", f"/v1/jobs/{job}/run", {"overlap": "queue", "new": True})
        if reply.status != 202:
            locked += 1
            site.wrong.append(f"locked: {job} cannot be run: {reply}")
            continue
        run = site.daemon.run_when(reply.body["id"], lambda row: row["finished_at"])
        if run["state"] != "succeeded":
            locked += 1
            site.wrong.append(f"locked: {job} ended {run['state']}: {run['message']}")
    return locked


def _come_to_rest(site: Site) -> None:
    """Every job that fires is paused, and what was under way has ended."""
    for job in ("second", "again", "after", "beside", "flood", "long", "narrate"):
        site.daemon.post(f"/v1/jobs/{job}/pause")
    for job in PAUSABLE:
        site.paused[job] = True
    site.daemon.until(lambda: is_quiet(site), seconds=120)


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _doubles(site: Site, db: sqlite3.Connection) -> int:
    """Executions beyond the one that a claim, a recorded run, an item that is done may have."""
    lines = read_ledger(site.daemon.path("ledger"))
    job_of = dict(db.execute("SELECT id, job FROM runs"))
    claims = Counter((line.run, line.claim) for line in lines if line.item is None)
    runs = Counter(line.run for line in lines if line.item is None and job_of[line.run] in _RECORDED)
    items = Counter((line.run, line.item) for line in lines if line.item is not None)
    fires = Counter(
        db.execute(
            "SELECT job, fire_time, generation FROM runs WHERE state <> 'skipped' AND fire_time IS NOT NULL"
        ).fetchall()
    )
    doubles = [key for counted in (claims, runs, items, fires) for key, times in counted.items() if times > 1]
    site.wrong += [f"double: {key}" for key in doubles]
    return len(doubles)


def _fired_in_pause(site: Site, db: sqlite3.Connection) -> int | None:
    """Claims by schedule between the answer to a pause and the request to resume; None where clocks move."""
    if site.steps_clock:
        return None
    found = 0
    for job, since, until in site.spans:
        rows = db.execute(
            "SELECT id FROM runs WHERE job = ? AND trigger IN ('schedule', 'catch_up') AND claimed_at > ?"
            " AND claimed_at < ?",
            (job, since, until),
        ).fetchall()
        found += len(rows)
        site.wrong += [f"fired in a pause: run {row[0]} of {job}" for row in rows]
    return found


def _lost_outcomes(site: Site, db: sqlite3.Connection) -> int:
    """I10: runs that the log called succeeded, and that are not on disk."""
    kept = {row[0] for row in db.execute("SELECT id FROM runs WHERE state = 'succeeded'")}
    lost = site.succeeded - kept
    site.wrong += [f"outcome told and lost: {run}" for run in sorted(lost)]
    return len(lost)
