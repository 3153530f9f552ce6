from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from scheduler.executors import ending, processes
from scheduler.executors.ending import send_signal
from scheduler.executors.processes import (
    Belonging,
    Process,
    ProcessId,
    Session,
    is_unused,
    process_identity,
    session_members,
    session_survivors,
    start_ticks,
    this_owner,
    walk,
)
from scheduler.model.runs import OwnerId
from tests.support.executors import is_alive

RUN = "0193f2c4-7a1b-7abc-8000-0123456789ab"
MARKS = {"SCHEDULER_STORE_ID": "ours", "SCHEDULER_RUN_ID": RUN, "SCHEDULER_CLAIM": "3"}
MINE = Belonging(store_id="ours", run_id=RUN, claim=3)


@contextmanager
def process(**environment: str) -> Iterator[ProcessId]:
    """A sleeping process in a session of its own, with that environment and no other."""
    child = subprocess.Popen(["/bin/sleep", "60"], env=environment, start_new_session=True)
    try:
        while environment and not Path(f"/proc/{child.pid}/environ").read_bytes():
            time.sleep(0.001)  # in the midst of its exec it has none yet
        yield ProcessId(ticks=start_ticks(child.pid) or 0, pid=child.pid)
    finally:
        child.kill()
        child.wait()


def test_identity_is_the_raw_start_ticks() -> None:
    """The identity of this process is what /proc says; a pid without a process has none."""
    raw = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]

    assert process_identity(os.getpid()) == int(raw)
    assert process_identity(2**22 + 1) is None


def test_zombie_does_not_live_but_has_ticks() -> None:
    """A process that ended and was not reaped is not alive, and still names its start."""
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert process_identity(child.pid) is None
    assert start_ticks(child.pid)
    child.wait()
    assert start_ticks(child.pid) is None


def test_process_whose_main_thread_ended_lives() -> None:
    """A zombie main thread with other threads at work is a living process."""
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start();"
        "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    child.stdout.readline()
    deadline = time.monotonic() + 5
    while is_alive(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert not is_alive(child.pid), "the state of its main thread is Z"
    assert process_identity(child.pid) is not None
    child.stdout.close()
    child.kill()
    child.wait()


def test_name_full_of_parentheses_does_not_confuse() -> None:
    """The fields of stat are counted from the last parenthesis of the name."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') Z 1 (x'); print(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()

    assert Path(f"/proc/{child.pid}/comm").read_text().strip() == ") Z 1 (x"
    assert process_identity(child.pid) == start_ticks(child.pid)
    child.stdout.close()
    child.kill()
    child.wait()


def test_owner_is_this_process() -> None:
    """An owner names machine, boot, pid and start ticks."""
    owner = this_owner(OwnerId("abc"))

    assert owner.id == "abc"
    assert owner.pid == os.getpid()
    assert owner.start_ticks == process_identity(os.getpid())
    assert len(owner.boot_id) == 36


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"SCHEDULER_CLAIM": "2"}, True),
        ({"SCHEDULER_CLAIM": "4"}, False),
        ({"SCHEDULER_CLAIM": "three"}, False),
        ({"SCHEDULER_CLAIM": ""}, False),
        ({"SCHEDULER_STORE_ID": "theirs"}, False),
        ({"SCHEDULER_RUN_ID": RUN.replace("0", "1")}, False),
    ],
)
def test_environment_names_the_run(changes: dict[str, str], found: bool) -> None:
    """Store and run have to agree, and the claim must not be newer than the one seen (I8, I11)."""
    with process(**MARKS | changes) as started:
        assert (started in MINE.processes()) is found


def test_session_finds_what_cleared_its_environment() -> None:
    """A process without our marks is found by the recorded session and its leader's ticks."""
    with process() as started:
        session = Session(leader=started.pid, ticks=started.ticks)

        assert started in replace(MINE, session=session).processes()
        assert session_members(session) == []


@pytest.mark.parametrize(
    "line",
    [
        "sleep 60 <&- >/dev/null 2>&1 & echo $!",
        "set -m; sleep 60 <&- >/dev/null 2>&1 & echo $!",
    ],
)
def test_number_of_a_session_is_used_until_its_last_member_is_gone(line: str) -> None:
    """After the leader was reaped its number tells whether anybody is left, in whatever group (I11)."""
    with open_probe() as probe:
        leader = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, start_new_session=True)
        session = Session(leader=leader.pid, ticks=start_ticks(leader.pid) or 0)
        leader.communicate()

        assert not is_unused(leader.pid, probe)
        (left,) = session_survivors(session)
        assert not is_unused(os.getpid(), probe)

        os.kill(left.pid, signal.SIGKILL)
        while session_survivors(session):
            time.sleep(0.001)


def test_number_is_unused_once_all_are_gone() -> None:
    """A session whose only process was reaped has left nothing, and that is told without a look at others."""
    with open_probe() as probe:
        leader = subprocess.Popen(["/bin/true"], start_new_session=True)
        session = Session(leader=leader.pid, ticks=start_ticks(leader.pid) or 0)
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        assert not is_unused(leader.pid, probe)
        leader.wait()

        assert is_unused(leader.pid, probe)
        assert session_survivors(session) == []


def test_session_of_a_number_used_again_has_no_survivors() -> None:
    """A process that bears the number proves that the session of that number had become empty."""
    line = "sleep 60 & wait"
    leader = subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True)
    session = Session(leader=leader.pid, ticks=(start_ticks(leader.pid) or 0) - 1)
    while not session_members(session):
        time.sleep(0.001)

    survivors = session_survivors(session)
    os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()

    assert survivors == []


def test_kernel_that_does_not_tell_of_a_number_calls_none_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is known a look at all processes has to tell."""
    number = unused_number()
    with open_probe() as probe:
        assert is_unused(number, probe)

        monkeypatch.setattr(fcntl, "fcntl", lambda *_args: 0)
        assert not is_unused(number, probe)


def test_members_are_found_where_the_kernel_does_not_tell_their_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A security module that forbids the question leaves /proc to answer."""
    with process() as started:
        leader = os.getsid(0)
        session = Session(leader=leader, ticks=0)
        child = subprocess.Popen(["/bin/sleep", "60"])
        monkeypatch.setattr(os, "getsid", lambda _pid: (_ for _ in ()).throw(PermissionError()))

        members = {member.pid for member in session_members(session)}

        assert child.pid in members
        assert started.pid not in members
        child.kill()
        child.wait()


@contextmanager
def open_probe() -> Iterator[int]:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def unused_number() -> int:
    """The number of a process that is gone, and had no others."""
    child = subprocess.Popen(["/bin/true"], start_new_session=True)
    child.wait()
    return child.pid


def test_session_with_another_leader_is_not_ours() -> None:
    """A pid that was used again names another session: its leader's ticks differ."""
    with process() as started:
        reused = Session(leader=started.pid, ticks=started.ticks - 1)

        assert started not in replace(MINE, session=reused).processes()


def test_session_member_that_is_of_another_run_is_not_ours() -> None:
    """The marks of another run outweigh the session."""
    with process(**MARKS | {"SCHEDULER_RUN_ID": RUN.replace("0", "2")}) as started:
        session = Session(leader=started.pid, ticks=started.ticks)

        assert started not in replace(MINE, session=session).processes()


def test_members_of_a_session_whose_leader_is_gone_are_ours_if_younger() -> None:
    """Without the leader, only what began after it can be of its session."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!"], env={}, start_new_session=True, stdout=subprocess.PIPE
    )
    ticks = start_ticks(child.pid) or 0
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    child.stdout.close()
    child.wait()
    orphan = ProcessId(ticks=start_ticks(pid) or 0, pid=pid)
    try:
        ours = replace(MINE, session=Session(leader=child.pid, ticks=ticks))
        later = replace(MINE, session=Session(leader=child.pid, ticks=orphan.ticks + 1))

        assert ours.processes() == [orphan]
        assert later.processes() == []
    finally:
        os.kill(pid, signal.SIGKILL)


ASK_SELF = """
import os, sys
from scheduler.executors.processes import Belonging, Session, process_identity
session = Session(leader=os.getsid(0), ticks=process_identity(os.getsid(0)) or 0)
belonging = Belonging(store_id="ours", run_id=sys.argv[1], claim=3, session=session)
print([found.pid for found in belonging.processes()])
"""


def test_neither_this_process_nor_an_ancestor_is_ever_found() -> None:
    """A daemon that was itself started by such a run does not end itself or what started it."""
    line = f'{sys.executable} -c "$CODE" {RUN}; true'
    environment = {**os.environ, **MARKS, "CODE": ASK_SELF}

    done = subprocess.run(
        ["/bin/sh", "-c", line], env=environment, start_new_session=True, capture_output=True, check=True
    )

    assert done.stdout == b"[]\n"


def test_own_session_is_never_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded session that is by now our own ends none of our siblings."""
    monkeypatch.setattr(os, "getsid", lambda _pid: 4711)
    sibling = Process(id=ProcessId(ticks=99, pid=5000), parent=1, session=4711)
    monkeypatch.setattr(processes, "walk", lambda: iter([sibling]))
    monkeypatch.setattr(processes, "_marks", lambda _pid: None)

    assert replace(MINE, session=Session(leader=4711, ticks=1)).processes() == []


def test_who_asks_during_a_look_shares_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """I11: nobody gets a look that began before he asked, and those that wait together cost one."""
    looks, asking = processes.Looks(), Arrivals()
    walking, gate = threading.Event(), threading.Event()
    number = count(1)

    def slow_walk() -> Iterator[Process]:
        walking.set()
        gate.wait(30)
        yield Process(id=ProcessId(ticks=1, pid=next(number)), parent=1, session=1)

    monkeypatch.setattr(processes, "walk", slow_walk)
    monkeypatch.setattr(looks, "_lock", asking)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(looks.now)
        assert walking.wait(30)
        others = [pool.submit(looks.now) for _ in range(3)]
        assert asking.reached(4)
        gate.set()

    seen = [[process.id.pid for process, _ in look.result()] for look in (first, *others)]
    assert seen == [[1], [2], [2], [2]]


class Arrivals:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Semaphore(0)
        self._counted = 0

    def __enter__(self) -> None:
        self._came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def reached(self, number: int) -> bool:
        """So many have come, within half a minute."""
        while self._counted < number:
            if not self._came.acquire(timeout=30):
                return False
            self._counted += 1
        return True


def test_walk_shows_every_living_process_once() -> None:
    """This process and its child are in the walk, each once."""
    with process() as started:
        everyone = [found.id.pid for found in walk()]

        assert everyone.count(started.pid) == everyone.count(os.getpid()) == 1


def without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)


@pytest.mark.parametrize("prepare", [lambda _patch: None, without_pidfd], ids=["pidfd", "no pidfd"])
def test_signal_reaches_the_process_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A process that still is the one looked at is signalled."""
    prepare(monkeypatch)
    with process() as started:
        send_signal(started, signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)

        assert not is_alive(started.pid)


@pytest.mark.parametrize("prepare", [lambda _patch: None, without_pidfd], ids=["pidfd", "no pidfd"])
def test_signal_never_reaches_who_got_the_pid_later(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A pid that was used again is not signalled; without the check it would be."""
    prepare(monkeypatch)
    with process() as started:
        before = started._replace(ticks=started.ticks - 1)

        send_signal(before, signal.SIGKILL)
        time.sleep(0.05)
        assert is_alive(started.pid)

        monkeypatch.setattr(ending, "process_identity", lambda _pid: before.ticks)
        send_signal(before, signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(started.pid)


def test_signal_to_nobody_is_no_error() -> None:
    """A process that is gone takes no signal and raises nothing."""
    send_signal(ProcessId(ticks=1, pid=2**22 + 1), signal.SIGTERM)
