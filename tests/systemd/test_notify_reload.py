"""The drop-in for systemd 253 and newer, under a systemd that knows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.support.sandbox import UNIT, Machine, required_tool

pytestmark = pytest.mark.slow

JOB = '[jobs.{}]\nmanual = true\nshell = ":"\n'
DROP_IN = "/usr/local/share/schedulerd/drop-ins/notify-reload.conf"


@pytest.fixture(scope="module")
def booted(environment: Path) -> Iterator[Machine]:
    """A machine whose systemd is new enough."""
    machine = Machine(required_tool(), environment)
    if machine.version < 253:
        machine.down()
        machine = Machine(required_tool(), environment, "--backports")
    try:
        if machine.version < 253:
            pytest.skip(f"systemd {machine.version} does not know notify-reload")
        machine.install()
        yield machine
    finally:
        machine.down()


def test_the_shipped_units_are_sound_here(machine: Machine) -> None:
    """With its drop-in the service passes `verify` of this systemd, and hardened it stays below its limit."""
    machine.prepare()
    for name in ("notify-reload", "hardened"):
        machine.drop_in(f"{name}.conf", machine.path(f"{Path(DROP_IN).parent}/{name}.conf").read_text())

    machine.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", UNIT)
    machine.run("systemd-analyze", "security", "--threshold=15", UNIT)
    assert machine.show("Type") == "notify-reload"


def test_reload_returns_when_the_files_are_read(machine: Machine) -> None:
    """`systemctl reload` waits: when it returns a new job is there, and the faults of a bad file are told."""
    machine.prepare(JOB.format("first"))
    machine.drop_in("notify-reload.conf", machine.path(DROP_IN).read_text())
    machine.start()
    pid = machine.main_pid()

    machine.jobs(JOB.format("first") + JOB.format("second"))
    machine.run("systemctl", "reload", UNIT)
    assert machine.ask("GET", "/v1/jobs/second")[0] == 200

    machine.jobs("[jobs.third]\nnonsense = 1\n")
    machine.run("systemctl", "reload", UNIT)
    assert machine.ask("GET", "/v1/jobs/second")[0] == 200
    machine.until(lambda: "faults in job files" in machine.show("StatusText"))
    assert machine.main_pid() == pid


def test_a_reload_during_a_reload_is_answered(machine: Machine) -> None:
    """A SIGHUP of somebody else right before `systemctl reload` does not make that wait for its time-out."""
    many = "".join(JOB.format(f"job-{number}") for number in range(1500))  # so that a reload takes its time
    machine.prepare(many, unit="TimeoutStartSec=10s")
    machine.drop_in("notify-reload.conf", machine.path(DROP_IN).read_text())
    machine.start()
    pid = machine.main_pid()

    machine.run("sh", "-c", f"kill -HUP {pid}; sleep 0.1; systemctl reload {UNIT}")

    assert machine.show("ActiveState") == "active"
    assert machine.main_pid() == pid
