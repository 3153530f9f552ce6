"""The shipped unit under a real systemd."""

from __future__ import annotations

import json
import time

import pytest

from tests.systemd.support.sandbox import CONFIG, STATE, UNIT, Machine

pytestmark = pytest.mark.slow

SLEEPER = '[jobs.sleeper]\nmanual = true\nshell = "exec sleep 600"\n'
HOLDER = """
import asyncio
import time

async def hold_the_loop(run):
    await asyncio.sleep(0.5)  # the request that started it is answered before
    time.sleep(600)
"""


def test_it_starts_as_its_own_user_and_others_stay_out(machine: Machine) -> None:
    """The daemon runs as schedulerd; its state is for it alone, its socket for its group (B42)."""
    machine.prepare('[jobs.a]\nmanual = true\nshell = "echo hello"\n')
    machine.start()
    run = machine.start_run("a")
    machine.run_when(run, "succeeded")

    def mode(path: str) -> str:
        return machine.run("stat", "-c", "%U:%G %a", path)

    assert machine.run("ps", "-o", "user=", "-p", str(machine.main_pid())) == "schedulerd"
    assert mode(STATE) == "schedulerd:schedulerd 700"
    assert mode("/run/schedulerd") == "schedulerd:schedulerd 750"
    assert mode("/run/schedulerd/control.sock") == "schedulerd:schedulerd 660"
    open_to_others = machine.run("find", STATE, "-perm", "/077")
    assert open_to_others == f"{STATE}/home" * bool(open_to_others)
    knock = "import socket; socket.socket(socket.AF_UNIX).connect('/run/schedulerd/control.sock')"
    stranger = machine.run("runuser", "-u", "nobody", "--", "python3", "-c", knock, check=False)
    assert stranger == ""
    assert machine.run("runuser", "-u", "schedulerd", "--", "python3", "-c", knock) == ""


def test_a_job_that_hides_cannot_lift_its_pause(machine: Machine) -> None:
    """One that leaves its parents and empties its environment is still in the service: it may only look."""
    ask = "sleep 0.5; schedctl resume a; echo $? >&3"
    line = f"""
        env -i PATH=$PATH sh -c 'setsid sh -c "{ask.replace("$", chr(92) + "$")}" &' 3>asked >/dev/null 2>&1
        sleep 2
        cat asked
    """
    machine.prepare(f"[jobs.a]\nmanual = true\nshell = '''{line}'''\n")
    machine.start()
    machine.run("schedctl", "pause", "a", "--reason", "stay")

    run = machine.run_when(machine.start_run("a"), "succeeded")

    assert machine.run("schedctl", "output", run["id"]).strip() == "5"
    assert "stay" in machine.run("schedctl", "why", "a")


def test_a_job_gets_its_own_environment_and_nothing_of_the_manager(machine: Machine) -> None:
    """Under the unit a job finds HOME, PATH, SHELL and umask as documented, and no variable of ours (B32)."""
    line = 'set -u; echo "$HOME $LOGNAME $SHELL"; umask; pwd; env | cut -d= -f1; nosuchprogram'
    machine.prepare(f"[jobs.a]\nmanual = true\nshell = '''{line}'''\n")
    machine.start()

    run = machine.run_when(machine.start_run("a"), "failed")

    output = machine.run("schedctl", "output", run["id"])
    lines = [text for text in output.splitlines() if text]
    assert f"{STATE}/home schedulerd /bin/sh" in output
    assert "0022" in output
    assert any(text.endswith(f"{STATE}/home") for text in lines)
    for ours in (
        "NOTIFY_SOCKET",
        "WATCHDOG",
        "LISTEN_",
        "JOURNAL_STREAM",
        "INVOCATION_ID",
        "STATE_DIRECTORY",
    ):
        assert ours not in output
    assert run["exit_code"] == 127


def test_the_service_is_active_only_when_it_is_ready(machine: Machine) -> None:
    """As long as the store cannot be written, the unit is `activating`; when it is active it answers."""
    machine.prepare(SLEEPER)
    machine.start()
    machine.run("systemctl", "stop", UNIT)
    hold = f"""
import sqlite3, time, pathlib
db = sqlite3.connect(str(next(pathlib.Path('{STATE}').glob('*.db*'))), isolation_level=None)
db.execute('BEGIN IMMEDIATE')
pathlib.Path('/run/held').touch()
time.sleep(2)
"""
    machine.run("systemd-run", "--unit=holder", "--collect", "python3", "-c", hold)
    machine.until(lambda: machine.path("/run/held").exists())

    began = time.monotonic()
    machine.run("systemctl", "start", "--no-block", UNIT)
    machine.until(lambda: machine.show("ActiveState") == "activating")
    machine.until(lambda: machine.show("ActiveState") == "active")

    assert time.monotonic() - began > 1
    assert machine.ask("GET", "/readyz")[0] == 200


def test_a_start_that_fails_says_why_and_is_tried_again(machine: Machine) -> None:
    """A fault in the daemon's own file ends the start with exit code 1, its reason in the journal (B28)."""
    machine.prepare(SLEEPER, nonsense=1)

    machine.run("systemctl", "start", "--no-block", UNIT, check=False)

    machine.until(lambda: int(machine.show("NRestarts")) >= 2)
    assert "status=1/FAILURE" in machine.told()
    assert "nonsense" in machine.told()


def test_reload_takes_good_files_and_keeps_the_old_jobs_of_bad_ones(machine: Machine) -> None:
    """`systemctl reload` brings in what is sound; a fault changes nothing, is told, and costs no restart."""
    machine.prepare(SLEEPER)
    machine.start()
    pid = machine.main_pid()

    machine.jobs(SLEEPER + SLEEPER.replace("sleeper", "second"))
    machine.run("systemctl", "reload", UNIT)
    machine.until(lambda: machine.ask("GET", "/v1/jobs/second")[0] == 200)
    machine.jobs("[jobs.third]\nnonsense = 1\n")
    machine.run("systemctl", "reload", UNIT)

    machine.until(lambda: "faults in job files" in machine.show("StatusText"))
    assert machine.ask("GET", "/v1/jobs/second")[0] == 200
    machine.until(lambda: machine.show("ActiveState") == "active")
    assert machine.main_pid() == pid


def test_a_stop_waits_for_runs_beyond_its_timeout(machine: Machine) -> None:
    """While runs are drained the stop timeout is extended, and the run's outcome is recorded (I12)."""
    job = '[jobs.slow]\nmanual = true\nshell = "sleep 2.5"\n'
    machine.prepare(job, unit="TimeoutStopSec=1s", drain_timeout="20s")
    machine.start()
    run = machine.start_run("slow")
    machine.run_when(run, "running")

    machine.run("systemctl", "stop", "--no-block", UNIT)
    machine.until(lambda: machine.show("StatusText").startswith("draining, 1 run live"))
    machine.until(lambda: machine.show("ActiveState") == "inactive")

    assert machine.show("Result") == "success"
    machine.start()
    assert machine.get(f"/v1/runs/{run}")["state"] == "succeeded"


def test_a_killed_daemon_is_restarted_and_its_job_is_free(machine: Machine) -> None:
    """After SIGKILL nothing of the run is left, its row says so, no fire is doubled, it can run (I7)."""
    ticking = '[jobs.tick]\nevery = "1s"\nshell = ":"\n'
    machine.prepare(SLEEPER + ticking)
    machine.start()
    run = machine.start_run("sleeper")
    child = machine.run_when(run, "running")["pid"] or machine.until(
        lambda: machine.get(f"/v1/runs/{run}")["pid"]
    )
    pid = machine.main_pid()

    machine.run("kill", "-KILL", str(pid))

    machine.until(lambda: machine.main_pid() not in (0, pid) and machine.show("ActiveState") == "active")
    assert machine.run_when(run, "crashed")["reason"] == "owner_died"
    assert not machine.path(f"/proc/{child}").exists()
    assert machine.run("pgrep", "-fc", "sleep 600", check=False) == "0"
    again = machine.start_run("sleeper")
    machine.run_when(again, "running")
    fired = [row["fire_time"] for row in machine.get("/v1/runs?job=tick&limit=500")["items"]]
    assert len(fired) == len(set(fired)) > 0


def test_a_held_loop_is_ended_by_the_watchdog_with_all_stacks(machine: Machine) -> None:
    """A handler that holds the loop costs a restart; the journal names the function that did it (B48)."""
    job = '[jobs.hold]\nmanual = true\npython = "handlers:hold_the_loop"\n'
    machine.prepare(job, handlers=HOLDER, unit="WatchdogSec=2s")
    machine.start()
    pid = machine.main_pid()

    run = machine.start_run("hold")

    machine.until(lambda: machine.main_pid() not in (0, pid) and machine.show("ActiveState") == "active")
    told = machine.told()
    assert "Watchdog timeout" in told
    assert "Fatal Python error: Aborted" in told
    assert "in hold_the_loop" in told
    assert told.count("(most recent call first)") > 1
    machine.run_when(run, "crashed")


def test_a_store_that_cannot_be_written_costs_no_restart(machine: Machine) -> None:
    """On a full disk pings and runs go on, /readyz and the status line tell; with room all is well (I14)."""
    machine.prepare(SLEEPER + '[jobs.tick]\nevery = "1s"\nshell = ":"\n', unit="WatchdogSec=2s")
    machine.run("mkdir", "-p", STATE)
    machine.run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", STATE)
    machine.start()
    pid = machine.main_pid()
    run = machine.start_run("sleeper")
    machine.run_when(run, "running")

    machine.run("sh", "-c", f"cat /dev/zero > {STATE}/ballast", check=False)
    machine.until(lambda: "the store cannot be written" in machine.show("StatusText"))
    assert machine.ask("GET", "/readyz")[0] == 503
    time.sleep(4)  # twice the watchdog's interval
    assert machine.main_pid() == pid
    assert machine.ask("GET", "/readyz")[0] == 503

    machine.run("rm", f"{STATE}/ballast")
    machine.until(lambda: machine.ask("GET", "/readyz")[0] == 200)
    machine.until(lambda: "cannot" not in machine.show("StatusText"))
    assert machine.show("NRestarts") == "0"
    assert machine.get(f"/v1/runs/{run}")["state"] == "running"


def test_the_journal_finds_lines_by_job_event_and_priority(machine: Machine) -> None:
    """`journalctl JOB=… EVENT=…` finds the entry, whose text is the JSON line, whose priority its level's."""
    machine.prepare(
        '[jobs.nightly]\nmanual = true\nshell = "exit 3"\n[jobs.other]\nmanual = true\nshell = ":"\n'
    )
    machine.start()
    run = machine.run_when(machine.start_run("nightly"), "failed")
    machine.run_when(machine.start_run("other"), "succeeded")

    (entry,) = machine.until(lambda: machine.found("JOB=nightly", "EVENT=run_failed"))

    line = json.loads(entry["MESSAGE"])
    assert line["run_id"] == entry["RUN_ID"] == run["id"]
    assert int(entry["PRIORITY"]) < 6
    assert entry["SYSLOG_IDENTIFIER"] == "schedulerd"
    assert {found["JOB"] for found in machine.found("JOB=nightly")} == {"nightly"}
    assert machine.found("PRIORITY=6", "EVENT=daemon_ready")


def test_status_shows_a_useful_line(machine: Machine) -> None:
    """`systemctl status` tells live runs, jobs, and the next moment at which something happens."""
    machine.prepare(SLEEPER + '[jobs.yearly]\ncron = "0 0 1 1 *"\nshell = ":"\n', unit="WatchdogSec=2s")
    machine.start()
    machine.run_when(machine.start_run("sleeper"), "running")

    machine.until(lambda: machine.show("StatusText").startswith("1 run live, 2 jobs, next at "))

    assert "-01-01T00:00:00+00:00" in machine.run("systemctl", "status", UNIT, check=False)


def test_a_clock_in_the_past_silences_no_job(machine: Machine) -> None:
    """A start before the last wall time seen, as after a flat battery, re-arms jobs from now."""
    machine.prepare('[jobs.tick]\nevery = "2s"\nshell = ":"\n')
    machine.start()
    machine.until(lambda: machine.get("/v1/runs?job=tick")["items"])
    machine.run("systemctl", "stop", UNIT)
    ahead = 10 * 86_400 * 1_000_000
    shift = f"""
import sqlite3, pathlib
db = sqlite3.connect(str(next(pathlib.Path('{STATE}').glob('*.db*'))))
db.execute("UPDATE meta SET value = value + {ahead} WHERE name = 'wall_seen'")
assert db.total_changes == 1
db.execute("UPDATE jobs SET next_fire_at = next_fire_at + {ahead}, due_at = due_at + {ahead}")
db.commit()
"""  # noqa: S608 - numbers of our own
    machine.run("python3", "-c", shift)

    machine.start()

    machine.until(lambda: '"clock_stepped"' in machine.told())
    seen = len(machine.get("/v1/runs?job=tick&limit=500")["items"])
    machine.until(lambda: len(machine.get("/v1/runs?job=tick&limit=500")["items"]) > seen)


@pytest.mark.parametrize("drop_in", ["hardened", "home", "devices", "other-users"])
def test_jobs_run_and_root_operates_under_each_drop_in(machine: Machine, drop_in: str) -> None:
    """With each shipped drop-in the daemon starts, runs commands and handlers, and obeys root."""
    jobs = (
        '[jobs.cmd]\nmanual = true\nshell = "getent passwd root && exec 3<>/dev/null"\n'
        '[jobs.py]\nmanual = true\npython = "handlers:work"\nprocess = true\n'
    )
    handlers = (
        "import ctypes, sqlite3, threading, mmap, socket\n"
        "def work(run):\n"
        "    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "    socket.socket(socket.AF_INET).close()\n"
        "    return 1\n"
    )
    machine.prepare(jobs, handlers=handlers)
    machine.drop_in(
        f"{drop_in}.conf", machine.path(f"/usr/local/share/schedulerd/drop-ins/{drop_in}.conf").read_text()
    )
    machine.start()

    assert machine.run_when(machine.start_run("cmd"), "succeeded", "failed")["state"] == "succeeded"
    assert machine.run_when(machine.start_run("py"), "succeeded", "failed")["state"] == "succeeded"
    machine.run("schedctl", "pause", "cmd")
    assert machine.get("/v1/jobs/cmd")["status"] == "paused"


def test_an_instance_for_a_user_is_that_users(machine: Machine) -> None:
    """schedulerd@alice runs as alice, on directories of its own, beside the machine's daemon."""
    machine.prepare(SLEEPER)
    machine.run("useradd", "--create-home", "alice", check=False)
    machine.write(f"{CONFIG}-alice/jobs.d/jobs.toml", SLEEPER)
    machine.start()

    machine.run("systemctl", "start", "schedulerd@alice.service")

    try:
        shown = machine.run("schedctl", "list", "--json", "--socket", "/run/schedulerd-alice/control.sock")
        assert "sleeper" in shown
        assert machine.run("stat", "-c", "%U %a", "/var/lib/schedulerd-alice") == "alice 700"
    finally:
        machine.run("systemctl", "stop", "schedulerd@alice.service")
