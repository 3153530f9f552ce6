"""`watch` without a run: the live screen on a real terminal, and lines in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import command
from tests.cli.support.stub import StubDaemon, problem

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
PATIENCE = 20.0


class Terminal:
    """schedctl watch on a terminal of its own; `seen` is all that it has written."""

    def __init__(self, env: dict[str, str], *arguments: str) -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            command("watch", *arguments),
            env={**env, "TERM": "xterm-256color"},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )
        self.seen = b""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, condition: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < ends_at, self.seen.decode(errors="replace")[-3_000:]
            self._read(0.05)

    def ended(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        self._read(0.05)
        return self.process.returncode

    def is_restored(self) -> bool:
        """Modes and screen are those from before."""
        return (
            termios.tcgetattr(self._theirs) == self.before
            and self.seen.rfind(LEAVE) > self.seen.rfind(ENTER) >= 0
            and self.seen.rfind(SHOW_CURSOR) > self.seen.rfind(ENTER)
        )

    def _read(self, longest: float) -> None:
        if select.select([self._ours], [], [], longest)[0]:
            with suppress(OSError):
                self.seen += os.read(self._ours, 65_536)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(daemon: StubDaemon, environ: dict[str, str]) -> Iterator[Terminal]:
    """Three jobs, due in the order b, a, c; c has a live run, and a has failed."""
    live = run(
        state="running", job="c", finished_at=None, progress={"done": 3, "total": 10, "message": "page"}
    )
    daemon.jobs(
        job("a", last_run=run(OTHER_RUN, job="a", state="failed")),
        job("b", next_fire_at="2036-01-01T00:00:00+00:00"),
        job("c", next_fire_at=None, live_runs=[live]),
    )
    daemon.runs(run(OTHER_RUN, job="a", state="failed", reason="exit_code", exit_code=3))
    daemon.on(
        "GET", "/v1/status", {"version": "1", "health": {"ok": True}, "draining": False, "paused": None}
    )
    for name in "abc":
        for verb in ("pause", "resume"):
            daemon.on("POST", f"/v1/jobs/{name}/{verb}", {"job": job(name), "runs": []})
        daemon.on("POST", f"/v1/jobs/{name}/run", run(job=name))
    daemon.on("POST", f"/v1/runs/{RUN}/cancel", run(job="c"))
    terminal = Terminal(environ)
    yield terminal
    terminal.close()


def test_the_screen_shows_jobs_runs_and_failures(terminal: Terminal) -> None:
    """Jobs due next come first, live runs have a bar, failures their reason; `q` restores the terminal."""
    terminal.until(lambda: b"exit_code, exit 3" in terminal.seen)
    text = terminal.seen.decode()

    assert text.index("> b") < text.index("  a")
    assert "████░░░░░░░░░░░░ 3/10" in text
    assert "page" in text
    terminal.press("q")
    assert terminal.ended() == 0
    assert terminal.is_restored()


def test_keys_say_verbs_to_the_chosen_job(terminal: Terminal, daemon: StubDaemon) -> None:
    """j, k and arrows choose; p, r and x act at once, c asks first."""
    terminal.until(lambda: b"> b" in terminal.seen)

    terminal.press("pjr\x1b[Bx")
    terminal.until(lambda: len(daemon.mutations()) == 3)
    terminal.press("c")
    terminal.until(lambda: b"cancel 1 run(s) of c?" in terminal.seen)
    terminal.press("n")
    terminal.press("cy")
    terminal.until(lambda: len(daemon.mutations()) == 4)

    assert [path for _, path, _ in daemon.mutations()] == [
        "/v1/jobs/b/pause",
        "/v1/jobs/a/resume",
        "/v1/jobs/c/run",
        f"/v1/runs/{RUN}/cancel",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_restore_the_terminal(terminal: Terminal, number: signal.Signals) -> None:
    """Whoever ends it, the shell gets its terminal back."""
    terminal.until(lambda: b"> b" in terminal.seen)

    terminal.process.send_signal(number)

    assert terminal.ended() == 130
    assert terminal.is_restored()


def test_a_daemon_in_trouble_is_waited_for(terminal: Terminal, daemon: StubDaemon) -> None:
    """The screen says what it hears, and stays."""
    terminal.until(lambda: b"> b" in terminal.seen)

    daemon.on("GET", "/v1/jobs", problem(503, "store_unavailable", "the disk is full"))

    terminal.until(lambda: b"does not answer" in terminal.seen)
    assert terminal.process.poll() is None


def test_values_cannot_command_the_terminal(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """What a job tells is spelt out on the screen too."""
    live = run(
        state="running", job="c", finished_at=None, progress={"done": 1, "message": "\x1b]0;x\x07\x9b"}
    )
    daemon.jobs(job("c", live_runs=[live]))
    daemon.on("GET", "/v1/status", {"version": "1", "health": {"ok": True}})
    terminal = Terminal(environ)
    try:
        terminal.until(lambda: b"\\e]0;x\\x07\\x9b" in terminal.seen)
        assert b"\x1b]0;x" not in terminal.seen
    finally:
        terminal.close()


def test_a_pipe_gets_a_line_for_each_change(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """What stands at the beginning is no change; a run that begins, and a job that is paused, are."""
    daemon.jobs(job("a"))
    daemon.on("GET", "/v1/status", {"version": "1", "health": {"ok": True}})
    process = subprocess.Popen(command("watch"), env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        _wait(lambda: sum(asked.path == "/v1/status" for asked in daemon.asked) >= 1)
        daemon.jobs(job("a", live_runs=[run(job="a", state="running", finished_at=None)]))
        first = process.stdout.readline()
        daemon.jobs(job("a", status="paused", last_run=run(job="a")))
        second, third = process.stdout.readline(), process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        process.stdout.close()

    assert first.endswith(f"a run {RUN} running\n")
    assert second.endswith("a paused\n")
    assert third.endswith(f"a run {RUN} succeeded after 1 min\n")


def test_changes_as_json_are_the_objects_of_the_api(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """One line a run or job."""
    daemon.jobs()
    daemon.on("GET", "/v1/status", {"version": "1", "health": {"ok": True}})
    process = subprocess.Popen(command("watch", "--json"), env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        _wait(lambda: sum(asked.path == "/v1/status" for asked in daemon.asked) >= 1)
        daemon.jobs(job("a"))
        line = process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        process.stdout.close()

    assert json.loads(line) == job("a")


def test_watching_ends_with_its_time(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """`--timeout` is how long to watch."""
    daemon.on("GET", "/v1/status", {"version": "1", "health": {"ok": True}})

    assert schedctl("watch", "--timeout", "1s").code == 0


def _wait(seen: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < ends_at
        time.sleep(0.02)
