"""The warden's process: `python -I -S warden_watch.py DAEMON STORE_ID`, with a pipe from the daemon as stdin.

It ends what the daemon was running at the moment at which the daemon dies, however it dies. On the pipe it is
told of each session that begins (`+ LEADER TICKS RUN_ID CLAIM`) and ends (`- LEADER TICKS RUN_ID CLAIM`);
that it is ready it says by a byte on stdout. When the pipe closes or the daemon is gone, whoever is alive of
the sessions that have not ended gets SIGTERM and SIGCONT, half a second later SIGKILL, until two looks in a
row find nobody.

Nothing but a few built-in modules: it starts in 10 ms and stays small. It lives in a session of its own and
ignores the signals of a terminal or a service manager, because its work begins when all others are ended.
It measures time in looks, 20 ms apart; a machine that is busy gives the processes more of it.

INVARIANT: a signal reaches only the process that was looked at: the pidfd is opened first, the start ticks
and the reason are read after it.
"""

from __future__ import annotations

import os
import select
import signal
import sys

LOOK_PAUSE_MS = 20
LOOKS_BEFORE_KILL = 25
"""Half a second between SIGTERM and SIGKILL: nobody is left to record what a longer grace would save."""

MOST_LOOKS = 1500
"""Half a minute; what cannot be killed until then hangs in the kernel."""

Ward = tuple[int, int, bytes, int]
"""Session leader, its start ticks, run, claim."""

PidAndTicks = tuple[int, int]


def main() -> None:
    """The daemon is gone, and so is what it was running."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    daemon, store_id = int(sys.argv[1]), sys.argv[2].encode()
    _say_ready()
    wards = _watch(daemon)
    if wards:
        _end_all(wards, store_id)


def _say_ready() -> None:
    try:
        os.write(1, b"!")
    except OSError:  # the daemon is gone already: all the more there is work
        return


def _watch(daemon: int) -> set[Ward]:
    """What was under way when the daemon was gone."""
    wards: set[Ward] = set()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        pidfd = os.pidfd_open(daemon)
    except OSError:
        pidfd = None  # an old kernel: then the pipe alone tells
    if pidfd is not None:
        poll.register(pidfd, select.POLLIN)
    # A process that the daemon forked may hold the pipe open, and would hide its death.
    gone = os.getppid() != daemon
    rest = b""
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(0 if gone else None)]
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return wards
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _note(line, wards)
        elif gone or pidfd in ready:
            return wards  # after all that stood in the pipe was read
        gone = gone or pidfd in ready


def _note(line: bytes, wards: set[Ward]) -> None:
    sign, leader, ticks, run_id, claim = line.split(b" ")
    ward = (int(leader), int(ticks), run_id, int(claim))
    if sign == b"+":
        wards.add(ward)
    else:
        wards.discard(ward)


def _end_all(wards: set[Ward], store_id: bytes) -> None:
    asked: set[PidAndTicks] = set()
    empty_looks = 0
    for look in range(MOST_LOOKS):
        found = [pid for pid in _pids() if _belongs(pid, wards, store_id)]
        for pid in found:
            _signal(pid, wards, store_id, asked, killing=look >= LOOKS_BEFORE_KILL)
        empty_looks = 0 if found else empty_looks + 1
        if empty_looks == 2:
            return
        select.select((), (), (), LOOK_PAUSE_MS / 1000)


def _signal(pid: int, wards: set[Ward], store_id: bytes, asked: set[PidAndTicks], *, killing: bool) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        stat = _stat(pid)
        if stat is None or not _belongs(pid, wards, store_id):
            return
        identity = (pid, stat[2])
        if killing:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        elif identity not in asked:
            asked.add(identity)
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except OSError:
        return
    finally:
        os.close(pidfd)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - no pathlib


def _belongs(pid: int, wards: set[Ward], store_id: bytes) -> bool:
    """Whether the process lives and is part of a ward: by its environment, else by its session.

    A later claim of the same run is another attempt, of the daemon that came after ours.
    """
    stat = _stat(pid)
    if stat is None or pid == os.getpid():
        return False
    marks = _marks(pid)
    if b"SCHEDULER_RUN_ID" in marks:
        run_id, claim = marks[b"SCHEDULER_RUN_ID"], marks.get(b"SCHEDULER_CLAIM", b"")
        return marks.get(b"SCHEDULER_STORE_ID") == store_id and any(
            run_id == ward[2] and claim.isdigit() and int(claim) <= ward[3] for ward in wards
        )
    _, session, ticks = stat
    return any(session == ward[0] and ticks >= ward[1] and _is_same_session(ward) for ward in wards)


def _is_same_session(ward: Ward) -> bool:
    """The number is not another session's by now: it is free for use again only when the session is empty."""
    leader = _stat(ward[0], living=False)
    return leader is None or leader[2] == ward[1]


def _stat(pid: int, *, living: bool = True) -> tuple[str, int, int] | None:
    """State, session and start ticks; None where there is no such process, or a dead one that must live."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the start-up time
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or (living and fields[0] in b"ZXx" and int(fields[17]) <= 1):
        return None
    return fields[0].decode(), int(fields[3]), int(fields[19])


def _marks(pid: int) -> dict[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            block = file.read(16 << 20)
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if entry.startswith(b"SCHEDULER_"))
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    main()
