from __future__ import annotations

import subprocess

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import command
from tests.cli.support.stub import Answer, StubDaemon

PATH = f"/v1/runs/{RUN}/output"


@pytest.fixture
def wrote(daemon: StubDaemon) -> StubDaemon:
    """A daemon that has the run; a test says what it wrote."""
    daemon.runs(run())
    return daemon


def test_output_prints_what_the_run_wrote(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """Stream and tail are parameters of the question."""
    wrote.on("GET", PATH, Answer(chunks=(b"one\n", b"two\n")))

    called = schedctl("output", RUN, "--stream", "stderr", "--tail", "2")

    assert called.out == "one\ntwo\n"
    assert wrote.asked[-1].query == {"stream": "stderr", "tail": "2"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ((b"a\tb\r\nc\n",), "a\tb\nc\n"),
        ((b"a\r", b"\nb"), "a\nb"),
        ((b"10%\r20%\r",), "10%\\r20%\\r"),
        ((b"\x1b[31mred\x1b[0m \x07\n",), "\\e[31mred\\e[0m \\x07\n"),
        ((b"gr\xc3", b"\xbcn \xe2\x9c\x93"), "grün ✓"),
        ((b"\xff\xfe \xc3",), "\\xff\\xfe \\xc3"),
        (("\u202eabc\u2028\x9b".encode(),), "\\u202eabc\\u2028\\x9b"),
    ],
)
def test_output_cannot_command_the_terminal(
    schedctl: Schedctl, wrote: StubDaemon, written: tuple[bytes, ...], shown: str
) -> None:
    """Lines and tabs stay, every other control character and broken byte is spelt out."""
    wrote.on("GET", PATH, Answer(chunks=written))

    assert schedctl("output", RUN).out == shown


def test_output_of_a_job_is_that_of_its_last_run(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The newest that began: a fire time that was skipped wrote nothing; also of a name like a run's id."""
    daemon.jobs(job("nightly"), job("facade"), job("new"))
    skipped = "0193f2c6-0000-7abc-8000-0123456789ab"
    daemon.runs(
        run(skipped, state="skipped", started_at=None),
        run(OTHER_RUN, "facade"),
        run(RUN),
        run("0193f2c3-0000-7abc-8000-0123456789ab"),
    )
    daemon.on("GET", PATH, Answer(chunks=(b"last\n",)))
    daemon.on("GET", f"/v1/runs/{OTHER_RUN}/output", Answer(chunks=(b"of facade\n",)))

    assert schedctl("output", "nightly").out == "last\n"
    assert schedctl("output", "facade").out == "of facade\n"
    assert (
        schedctl("output", "new").err
        == "schedctl: job new has not run yet; `schedctl why new` says what it waits for\n"
    )
    assert schedctl("output", "nightl").err.endswith("; did you mean nightly?\n")


def test_raw_output_is_what_was_written(wrote: StubDaemon, environ: dict[str, str]) -> None:
    """Byte for byte."""
    written = bytes(range(256)) * 10
    wrote.on("GET", PATH, Answer(chunks=(written,)))

    done = subprocess.run(
        command("output", RUN, "--raw"), env=environ, capture_output=True, timeout=30, check=True
    )

    assert done.stdout == written


def test_output_as_json_is_one_object(schedctl: Schedctl, wrote: StubDaemon) -> None:
    """The text with its run."""
    wrote.on("GET", PATH, Answer(chunks=(b"one\n\x1b",)))

    assert schedctl("output", RUN, "--json").json == {"run": RUN, "stream": None, "text": "one\n\x1b"}


def test_output_of_an_unknown_run_is_not_found(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3."""
    assert schedctl("output", RUN).code == 3
