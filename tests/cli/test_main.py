from __future__ import annotations

import json
import subprocess

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, job
from tests.cli.support.client import call_process as call
from tests.cli.support.client import command
from tests.cli.support.stub import StubDaemon, problem


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (422, "invalid", 2),
        (413, "too_large", 2),
        (404, "not_found", 3),
        (409, "conflict", 4),
        (409, "already_running", 4),
        (412, "stale", 4),
        (428, "precondition_required", 4),
        (403, "forbidden", 5),
        (503, "draining", 6),
        (503, "store_unavailable", 6),
        (500, "internal", 1),
    ],
)
def test_each_problem_code_has_its_exit_code(
    schedctl: Schedctl, daemon: StubDaemon, status: int, code: str, exit_code: int
) -> None:
    """A refusal is one line on stderr that says what the daemon said, and the exit code of the table."""
    daemon.on("POST", "/v1/jobs/nightly/run", problem(status, code, "no: because", run_id=RUN))

    called = schedctl("run", "nightly")

    assert called.code == exit_code
    assert called.out == ""
    [line] = called.err.splitlines()
    assert line.startswith("schedctl: no: because")


@pytest.mark.parametrize(
    ("status", "exit_code"), [(404, 3), (409, 4), (403, 5), (503, 6), (400, 2), (502, 1)]
)
def test_an_answer_without_problem_details_is_judged_by_its_status(
    schedctl: Schedctl, daemon: StubDaemon, status: int, exit_code: int
) -> None:
    """A proxy or an old daemon may answer without a code; the status still gives the exit code."""
    daemon.on("GET", "/v1/status", problem(status, "?", "strange"))

    assert schedctl("status").code == exit_code


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["list", "--frob"],
        ["pause"],
        ["pause", "a", "--all"],
        ["pause", "a", "--mode", "sleep"],
        ["run", "a", "--args", "[1]"],
        ["run", "a", "--args", "{"],
        ["show"],
        ["show", "a*"],
        ["runs", "a*"],
        ["runs", "--since", "yesterday"],
        ["list", "--timeout", "0"],
        ["list", "--timeout", "soon"],
        ["next"],
        ["next", "a", "--cron", "* * * * *"],
        ["next", "a", "--timezone", "UTC"],
        ["next", "--cron", "* * * * *", "-n", "0"],
        ["output", RUN, "--tail", "0"],
        ["why", "a", "--at", "noonish"],
        ["list", "--socket", "/" + "x" * 200],
        ["add", "a"],
        ["add", "a", "--file", "/does/not/exist"],
    ],
)
def test_a_call_that_cannot_be_meant_is_usage(
    schedctl: Schedctl, daemon: StubDaemon, arguments: list[str]
) -> None:
    """It exits 2 with one line on stderr, and the daemon was not asked to change anything."""
    called = schedctl(*arguments)

    assert called.code == 2
    assert called.out == ""
    assert len(called.err.splitlines()) == 1
    assert daemon.mutations() == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["lst"], "did you mean list?"),
        (["--socket", "/x", "list"], "write it after the verb"),
        (["completion"], "Choose from: bash, zsh, fish;"),
    ],
)
def test_a_slip_is_told_what_to_write(schedctl: Schedctl, arguments: list[str], advice: str) -> None:
    """The verb that was meant, the place where an option belongs."""
    called = schedctl(*arguments)

    assert (called.code, advice in called.err) == (2, True)


def test_help_lists_every_verb(schedctl: Schedctl) -> None:
    """Each verb of the table can be imported and has help of its own."""
    called = schedctl("--help")
    listed = [line.split()[0] for line in called.out.split("Verbs:")[1].splitlines() if line.strip()]

    assert called.code == 0
    assert {"list", "pause", "skip-next", "import"} <= set(listed)
    for verb in listed:
        told = schedctl(verb, "--help")
        assert told.code == 0
        assert verb in ("import", "completion") or "--json" in told.out


def test_without_a_verb_the_help_is_shown_as_an_error(schedctl: Schedctl) -> None:
    """A script that lost its argument does not pass for a success."""
    called = schedctl()

    assert called.code == 2
    assert "Usage: schedctl" in called.err


def test_version_is_the_packages(schedctl: Schedctl) -> None:
    """`--version` names program and version."""
    assert schedctl("--version").out.startswith("schedctl 0.")


def test_an_error_cannot_command_the_terminal(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Line ends and escapes in what the daemon says stay on one line, spelt out."""
    daemon.on("GET", "/v1/status", problem(409, "conflict", "bad\nname \x1b[2J"))

    called = schedctl("status")

    assert called.err == "schedctl: bad\\nname \\e[2J\n"


def test_an_invalid_definition_lists_all_its_faults(
    schedctl: Schedctl, daemon: StubDaemon, tmp_path: object
) -> None:
    """Several faults of one request stand one a line under the message."""
    faults = [{"job": "a", "key": "cron", "message": "m1"}, {"job": "a", "key": "args", "message": "m2"}]
    daemon.on("POST", "/v1/reload", problem(422, "invalid", "2 faults", faults=faults))

    called = schedctl("reload")

    assert called.code == 2
    assert called.err.splitlines() == [
        "schedctl: 2 faults",
        "schedctl:   job a: cron: m1",
        "schedctl:   job a: args: m2",
    ]


def test_a_reader_that_goes_away_is_no_error(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """`schedctl list | head -1` ends as other tools do: by SIGPIPE's code, with nothing on stderr."""
    daemon.jobs(*(job(f"job-{n:05}", description="x" * 300) for n in range(2_000)))
    process = subprocess.Popen(
        command("list", "--json"), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None

    first = json.loads(process.stdout.readline())
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()

    assert first["id"] == "job-00000"
    assert process.wait(timeout=30) == 141
    assert told == b""


def test_text_that_the_terminal_has_no_letters_for_is_spelt(
    daemon: StubDaemon, environ: dict[str, str]
) -> None:
    """An ASCII-only stdout shows escapes instead of failing."""
    daemon.jobs(job(description="grün"))

    called = call("show", "nightly", env={**environ, "PYTHONIOENCODING": "ascii"})

    assert called.code == 0
    assert "gr\\xfcn" in called.out


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["import", "crontab", "-", "--write"], "schedctl import crontab"),
        (["show", "x", "--socket"], "schedctl show"),
        (["--socket"], "schedctl"),
    ],
)
def test_an_option_without_its_value_points_to_the_help_of_its_verb(
    schedctl: Schedctl, words: list[str], place: str
) -> None:
    """Also where the parser does not know where it was."""
    called = schedctl(*words)

    assert called.code == 2
    assert f"`{place} --help` tells" in called.err
