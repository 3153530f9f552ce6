"""Runs with `isolate = "unit"` under a daemon of root: they outlive it, and are taken up by the next one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.systemd.support.sandbox import ROOT, STATE, UNIT, Machine

pytestmark = pytest.mark.slow

AS_ROOT = (ROOT / "systemd" / "drop-ins" / "other-users.conf").read_text()
UNITS = f"{STATE}/units"

COUNTER = """
i=0
while [ ! -e /run/go ]; do
    i=$((i+1)); echo "line $i"; sleep 0.1
    echo "{\\"done\\": $i, \\"message\\": \\"at $i\\"}" >&"$SCHEDULER_PROGRESS_FD"
done
echo "end $i $SECRET"
"""
REBEL = """
(env -i setsid sh -c '/usr/local/bin/schedctl pause good; echo $? > rebel.new; mv rebel.new rebel' &)
while [ ! -e rebel ]; do sleep 0.05; done
cat rebel; rm rebel
"""
WAIT = "while [ ! -e /run/go ]; do sleep 0.05; done;"


def job(name: str, line: str, **keys: object) -> str:
    """A job of its own unit that is started by hand."""
    told = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[jobs.{name}]\nmanual = true\nisolate = "unit"\nshell = {json.dumps(line)}\n{told}\n'


JOBS = "".join(
    [
        job("counter", COUNTER, env_file="/etc/schedulerd/secret.env"),
        job("good", f"{WAIT} exit 0"),
        job("bad", f"{WAIT} exit 3"),
        job("signalled", f"{WAIT} kill -USR1 $$"),
        job("orphaned", "exec sleep 600"),
        job("stopped", "exec sleep 600", on_crash="retry"),
        job("stubborn", "trap '' TERM; (env -i setsid sleep 601 &); sleep 601", kill_grace="300ms"),
        job("slow", "exec sleep 600", timeout="3s", kill_grace="100ms"),
        job("nobody", "id -un; pwd; id -u >&2", user="nobody", cwd="/"),
        job("rebel", REBEL, cwd="/run"),
        job("missing", "x").replace("shell", "command").replace('"x"', '["/no/such/program"]'),
    ]
)


@pytest.fixture(scope="module")
def daemon(booted: Machine) -> Iterator[Machine]:
    """A daemon of root, which the tests of this file stop, kill and start."""
    booted.prepare(JOBS, unit=AS_ROOT)
    booted.write("/etc/schedulerd/secret.env", "SECRET=hush-hush\n")
    booted.run("chmod", "600", "/etc/schedulerd/secret.env")
    booted.start()
    yield booted
    booted.run("systemctl", "kill", "-s", "KILL", "schedulerd-run-*", check=False)
    booted.clear()


@pytest.fixture
def machine(daemon: Machine) -> Iterator[Machine]:
    """The machine, with a daemon that is up and no unit of another test."""
    daemon.run("rm", "-f", "/run/go")
    daemon.run("systemctl", "start", UNIT)
    yield daemon
    daemon.run("touch", "/run/go")


def started(machine: Machine, name: str) -> dict[str, Any]:
    """A run of the job whose command is known to the daemon."""
    run = machine.start_run(name)
    machine.run_when(run, "running")
    return machine.until(lambda: row if (row := machine.get(f"/v1/runs/{run}"))["pid"] else None)


def units(machine: Machine) -> str:
    """What the manager knows of units of runs."""
    return machine.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "schedulerd-run-*")


def unit_of(machine: Machine, run: dict[str, Any]) -> str:
    """The unit that the run is in."""
    return next(line.split()[0] for line in units(machine).splitlines() if run["id"] in line)


def taken_up(machine: Machine, run: dict[str, Any], claim: int) -> dict[str, Any]:
    """The run, once it is followed under that claim."""

    def found() -> dict[str, Any] | None:
        row: dict[str, Any] = machine.get(f"/v1/runs/{run['id']}")
        return row if row["claim"] == claim and row["pid"] else None

    return machine.until(found)


def state_of(machine: Machine, pid: int) -> str:
    """The letter that the kernel has for the process; "" where there is none."""
    return machine.run("ps", "-o", "state=", "-p", str(pid), check=False)


def test_a_run_goes_on_over_a_stop_and_a_crash_of_the_daemon(machine: Machine) -> None:
    """The same process goes on, and so do output, progress and lease; no secret is told to anyone (I12)."""
    run = started(machine, "counter")
    told = machine.run("systemctl", "show", unit_of(machine, run)) + machine.run("ps", "axww", "-o", "args")
    assert "hush-hush" not in told
    assert UNIT in machine.run("systemctl", "show", "-P", "Before", unit_of(machine, run))

    machine.run("systemctl", "stop", UNIT)  # it would take 30 s if the drain waited
    left = json.loads(machine.run("schedctl", "show", run["id"], "--state", STATE, "--json"))
    assert left["state"] == "running"
    assert "goes on" in left["message"]
    machine.start()
    seen = taken_up(machine, run, 2)["progress"]["done"] or 0
    machine.until(lambda: (machine.get(f"/v1/runs/{run['id']}")["progress"]["done"] or 0) > seen + 3)
    machine.run("systemctl", "kill", "-s", "KILL", "--kill-whom=main", UNIT)
    machine.until(lambda: machine.show("NRestarts") != "0" and machine.show("ActiveState") == "active")
    assert taken_up(machine, run, 3)["pid"] == run["pid"]
    machine.run("touch", "/run/go")

    ended = machine.run_when(run["id"], "succeeded", "failed", "crashed")

    output = machine.run("schedctl", "output", run["id"]).splitlines()
    count = ended["progress"]["done"]
    assert (ended["state"], ended["exit_code"], ended["message"]) == ("succeeded", 0, None)
    assert output == [*(f"line {n}" for n in range(1, count + 1)), f"end {count} hush-hush"]
    assert machine.run("schedctl", "output", run["id"], "--tail", "1") == output[-1]
    assert [row["state"] for row in ended["attempts"]] == ["interrupted", "crashed", "succeeded"]
    machine.until(lambda: run["id"] not in units(machine) and run["id"] not in machine.run("ls", UNITS))


def test_what_ended_while_no_daemon_ran_is_recorded(machine: Machine) -> None:
    """Exit code and signal are told apart, a killed keeper from a command; the units are collected after."""
    runs = {name: started(machine, name) for name in ("good", "bad", "signalled", "orphaned", "stopped")}
    machine.run("systemctl", "stop", UNIT)
    machine.run("touch", "/run/go")
    machine.run("systemctl", "kill", "-s", "KILL", "--kill-whom=main", unit_of(machine, runs["orphaned"]))
    machine.run("systemctl", "stop", unit_of(machine, runs["stopped"]))
    machine.until(lambda: "running" not in units(machine))
    assert len(units(machine).splitlines()) == 4  # nothing was collected before its outcome is committed

    machine.start()

    ended = {
        name: machine.run_when(runs[name]["id"], "succeeded", "failed", "crashed")
        for name in ("good", "bad", "signalled", "orphaned")
    }
    keys = ("state", "reason", "exit_code", "signal")
    assert {name: tuple(row[key] for key in keys) for name, row in ended.items()} == {
        "good": ("succeeded", None, 0, None),
        "bad": ("failed", "exit_code", 3, None),
        "signalled": ("failed", "signal", None, 10),
        "orphaned": ("failed", "signal", None, 9),
    }
    assert "its unit was killed" in ended["orphaned"]["message"]
    again = machine.run_when(runs["stopped"]["id"], "running")  # by on_crash = "retry": it has not failed
    assert again["attempts"][1]["reason"] == "shutdown"
    machine.run("schedctl", "cancel", runs["stopped"]["id"])
    machine.until(lambda: units(machine) == "" and machine.run("ls", UNITS) == "")


def test_wishes_reach_a_run_in_a_unit_also_after_a_restart(machine: Machine) -> None:
    """A frozen run stays frozen over a restart of the daemon and goes on at the resume; its timeout waits."""
    frozen, stubborn = started(machine, "slow"), started(machine, "stubborn")
    machine.run("schedctl", "pause", "slow", "--mode", "freeze")
    machine.until(lambda: state_of(machine, frozen["pid"]) == "T")
    machine.run("systemctl", "restart", UNIT)
    taken_up(machine, stubborn, 2)

    machine.run("schedctl", "cancel", stubborn["id"])

    ended = machine.run_when(stubborn["id"], "cancelled")
    assert ended["signal"] == 9  # it ignores SIGTERM
    assert machine.run("pgrep", "-f", "sleep 601", check=False) == ""
    assert state_of(machine, frozen["pid"]) == "T"
    machine.run("schedctl", "resume", "slow")
    ended = machine.run_when(frozen["id"], "failed")
    assert ended["reason"] == "timeout"


def test_the_command_is_the_users_and_a_start_that_fails_says_why(machine: Machine) -> None:
    """The command runs as its user; neither a missing program nor a manager that refuses leaves anything."""
    run = machine.run_when(machine.start_run("nobody"), "succeeded", "failed")
    assert machine.run("schedctl", "output", run["id"]).splitlines() == ["nobody", "/", "65534"]

    rebel = machine.run_when(machine.start_run("rebel"), "succeeded", "failed")
    assert machine.run("schedctl", "output", rebel["id"]).splitlines()[-1] == "5"  # forbidden: inside a run

    missing = machine.run_when(machine.start_run("missing"), "succeeded", "failed")
    machine.write("/run/systemd/system/schedulerd-run-.service.d/no.conf", "[Service]\nExecStartPre=false\n")
    machine.run("systemctl", "daemon-reload")
    refused = machine.run_when(machine.start_run("good"), "succeeded", "failed")
    machine.run("rm", "-r", "/run/systemd/system/schedulerd-run-.service.d")
    machine.run("systemctl", "daemon-reload")

    assert (missing["reason"], refused["reason"]) == ("spawn_failed", "spawn_failed")
    assert "/no/such/program does not exist" in missing["message"]
    assert refused["message"].startswith("systemd does not start its unit: Job for schedulerd-run-")
    machine.until(lambda: units(machine) == "" and machine.run("ls", UNITS) == "")


def test_a_unit_without_a_run_is_ended_and_told_at_the_start(machine: Machine) -> None:
    """What runs on this state directory for no run of ours ends; what runs on another one does not (I11)."""
    names = []
    for number, folder in enumerate([UNITS, "/elsewhere/units"]):
        name = f"schedulerd-run-{store_of(machine)}-01a22de0-433c-7a01-b549-00000000000{number}-1"
        line = shlex.join(["sh", "-c", "sleep 600", folder, name])
        machine.run("sh", "-c", f"systemd-run --unit={name} {line}")
        names.append(f"{name}.service")

    machine.run("systemctl", "restart", UNIT)

    machine.until(lambda: names[0] not in units(machine))
    assert names[1] in units(machine)
    assert "a unit was ended whose run is not under way" in machine.told()
    machine.run("systemctl", "stop", names[1])


def store_of(machine: Machine) -> str:
    """The id of the daemon's store."""
    asked = (
        "import glob, sqlite3, sys;"
        "print(sqlite3.connect(glob.glob(sys.argv[1] + '/*.db')[0])"
        ".execute(\"SELECT value FROM meta WHERE name = 'store_id'\").fetchone()[0])"
    )
    return machine.run("python3", "-c", asked, STATE)


def test_a_users_own_manager_keeps_units_too(booted: Machine) -> None:
    """Under `systemctl --user` a run goes on over a restart of the daemon, as the user that it is."""
    uid = booted.run("sh", "-c", "id -u alice 2>&- || { useradd -m alice; id -u alice; }")
    booted.run("install", "-d", "-o", "alice", "-m", "700", f"/run/user/{uid}")
    jobs = job("unit", "id -un; while [ ! -e /run/go ]; do sleep 0.05; done; exit 4")
    booted.run("install", "-d", "-o", "alice", "/home/alice/.config/schedulerd/jobs.d")
    booted.write("/home/alice/.config/schedulerd/jobs.d/jobs.toml", jobs)
    booted.run("chown", "-R", "alice", "/home/alice/.config")
    booted.run("rm", "-f", "/run/go")
    runtime = f"XDG_RUNTIME_DIR=/run/user/{uid}"
    booted.run(
        "systemd-run", "--unit=alices-manager", "--property=Type=notify", "--property=Delegate=yes",
        "--property=User=alice", f"--property=Environment={runtime}", "/usr/lib/systemd/systemd", "--user",
    )  # fmt: skip

    def alice(*argv: str) -> str:
        return booted.run("runuser", "-u", "alice", "--", "env", runtime, *argv)

    try:
        alice("systemctl", "--user", "start", "schedulerd")
        run = json.loads(alice("schedctl", "run", "unit", "--json"))
        alice("systemctl", "--user", "restart", "schedulerd")
        booted.run("touch", "/run/go")

        def ended() -> dict[str, Any] | None:
            row: dict[str, Any] = json.loads(alice("schedctl", "show", run["id"], "--json"))
            return row if row["state"] == "failed" else None

        found = booted.until(ended)
        assert (found["exit_code"], found["claim"]) == (4, 2)
        assert alice("schedctl", "output", run["id"]) == "alice"
    finally:
        booted.run("systemctl", "stop", "alices-manager")
