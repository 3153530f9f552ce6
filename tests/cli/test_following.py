"""`output -f` and `--timestamps`: records as they come, the position kept over a restart."""

from __future__ import annotations

import base64
import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, run
from tests.cli.support.living import begun, rest_of
from tests.cli.support.living import schedctl as call_schedctl
from tests.cli.support.stub import Answer, Asked, StubDaemon
from tests.support.daemon import Daemon

PATH = f"/v1/runs/{RUN}/output"


def record(data: bytes, **changes: Any) -> bytes:
    told = {
        "claim": 1,
        "stream": "stdout",
        "at": "2026-10-01T00:30:01.250000+00:00",
        "data": base64.b64encode(data).decode(),
        "dropped": 0,
        "after": "1.0.9.9.0",
        **changes,
    }
    return json.dumps(told).encode() + b"\n"


@pytest.fixture
def wrote(daemon: StubDaemon) -> StubDaemon:
    """A daemon that has the run, which has ended."""
    daemon.runs(run())
    return daemon


def test_following_goes_on_behind_the_last_whole_record(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """An answer that broke off in a record is taken up where that record begins."""
    first = record(b"one\n", after="1.0.1.1.0")
    answers = [
        Answer(chunks=(first, record(b"two\n", after="1.0.2.2.0")[:30])),
        Answer(chunks=(record(b"two\n", after="1.0.2.2.0"),)),
    ]

    def answer(asked: Asked) -> Answer:
        return answers.pop(0) if answers else Answer(chunks=())

    wrote.on("GET", PATH, answer)

    called = schedctl("output", RUN, "-f")

    assert (called.code, called.out) == (0, "one\ntwo\n")
    asked = [each.query for each in wrote.asked if each.path == PATH]
    assert [each.get("after") for each in asked] == [None, "1.0.1.1.0"]
    assert {each["format"] for each in asked} == {"jsonl"}


def test_timestamps_stand_before_each_line_with_its_stream(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """A line that came in pieces has the time of its first; a last one without an end is shown too."""
    pieces = (
        record(b"o"),
        record(b"ne\ntwo", at="2026-10-01T00:30:02+00:00"),
        record("grün\x1b\n".encode(), stream="stderr"),
        record(b"", dropped=7),
    )
    wrote.on("GET", PATH, Answer(chunks=pieces))

    lines = schedctl("output", RUN, "--timestamps").out.splitlines()

    assert [re.sub(r"^\S+:30:", "", line) for line in lines] == [
        "01.250+00:00 stdout  one",
        "01.250+00:00 stderr  grün\\e",
        "01.250+00:00 stdout  [truncated, 7 bytes of stdout are missing here]",
        "02.000+00:00 stdout  two",
    ]


def test_attempts_are_told_apart_while_following(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """The same line as without `-f`."""
    wrote.on("GET", PATH, Answer(chunks=(record(b"a\n"), b"\n", record(b"b\n", claim=2))))

    assert schedctl("output", RUN, "-f").out.startswith("a\n--- attempt with claim 2 ---\nb\n")


def test_half_characters_wait_for_their_other_half(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """Borders of records fall anywhere, and streams do not mix."""
    halves = "ü".encode()
    wrote.on(
        "GET", PATH, Answer(chunks=(record(halves[:1]), record(b"!\n", stream="stderr"), record(halves[1:])))
    )

    assert schedctl("output", RUN, "--timestamps").out.count("ü") == 1


def test_records_as_json_are_one_object_a_line(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """With the run, the position and the text."""
    wrote.on("GET", PATH, Answer(chunks=(record(b"one\n"),)))

    assert schedctl("output", RUN, "--timestamps", "--json").json == {
        "run": RUN,
        "claim": 1,
        "stream": "stdout",
        "at": "2026-10-01T00:30:01.250000+00:00",
        "dropped": 0,
        "after": "1.0.9.9.0",
        "text": "one\n",
    }


def test_following_ends_with_the_timeout(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 7, and the line says that the run goes on."""
    daemon.runs(run(state="running", finished_at=None))
    daemon.on("GET", PATH, Answer(chunks=()))

    called = schedctl("output", RUN, "-f", "--timeout", "1s")

    assert called.code == 7
    assert "it goes on" in called.err


@pytest.fixture
def living() -> Iterator[Daemon]:
    jobs = """
    [jobs.counting]
    manual = true
    on_crash = "retry"
    shell = 'for i in 1 2 3 4 5 6; do echo line $i; sleep 0.4; done'
    [jobs.gated]
    manual = true
    shell = 'echo begun; while [ ! -e {here}/gate ]; do sleep 0.05; done; echo done'
    """
    with Daemon(jobs) as daemon:
        yield daemon


def test_lines_are_shown_while_the_run_works(living: Daemon) -> None:
    """The first line comes before the run has ended, and the follower ends with the run."""
    id = living.run("gated")
    follower = begun(living, "output", id, "--follow")
    assert follower.stdout is not None

    assert follower.stdout.readline() == "begun\n"
    assert living.run_of(id)["state"] == "running"
    living.open_gate("gate")

    assert rest_of(follower)[0] == "done\n"
    assert follower.returncode == 0


def test_following_survives_a_daemon_that_was_killed(living: Daemon) -> None:
    """Nothing is shown twice and nothing is left out; the attempt after the crash follows."""
    id = living.run("counting")
    follower = begun(living, "output", id, "-f")
    assert follower.stdout is not None
    first = follower.stdout.readline()

    living.kill9()
    time.sleep(0.3)
    living.start()
    living.ended(id)
    rest, errors = rest_of(follower)

    assert follower.returncode == 0
    assert first + rest == call_schedctl(living, "output", id).out
    assert "--- attempt with claim 2 ---\nline 1\n" in rest
    assert rest.endswith("line 6\n")
    assert "the daemon went away" in errors


def test_ctrl_c_ends_the_follower_and_not_the_run(living: Daemon) -> None:
    """Exit 130; the run goes on."""
    id = living.run("gated")
    follower = begun(living, "output", id, "-f")
    assert follower.stdout is not None
    follower.stdout.readline()

    follower.send_signal(signal.SIGINT)

    assert follower.wait(timeout=30) == 130
    assert living.run_of(id)["state"] == "running"
    living.open_gate("gate")
    follower.communicate()
