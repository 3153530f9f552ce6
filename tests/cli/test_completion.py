from __future__ import annotations

from pathlib import Path

from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import Called, call
from tests.cli.support.stub import StubDaemon


def complete(environ: dict[str, str], *words: str) -> Called:
    """What the shell is told after these words; the last one is being typed."""
    asked = {
        "_SCHEDCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["schedctl", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return call(env={**environ, **asked})


def words(called: Called) -> list[str]:
    return [line.split(",", 1)[1] for line in called.out.splitlines()]


def test_job_ids_are_completed(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """The live ids that begin as typed."""
    daemon.jobs(job("export-a"), job("export-b"), job("backup"))

    assert words(complete(environ, "pause", "exp")) == ["export-a", "export-b"]


def test_run_ids_are_completed(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Where a run is wanted; where either is wanted, both."""
    daemon.jobs(job("0193-job"))
    daemon.runs(run(RUN), run(OTHER_RUN))

    assert words(complete(environ, "output", "0193f2c4")) == [RUN]
    assert words(complete(environ, "show", "0193")) == ["0193-job", RUN, OTHER_RUN]


def test_verbs_are_completed(environ: dict[str, str]) -> None:
    """By their names."""
    assert words(complete(environ, "re")) == ["resume", "retry", "retry-now", "remove", "reload"]


def test_completion_is_silent_without_a_daemon(environ: dict[str, str], folder: Path) -> None:
    """The prompt is no place for errors."""
    called = complete({**environ, "SCHEDULER_SOCKET": str(folder / "none.sock")}, "pause", "exp")

    assert (called.code, called.out.strip(), called.err) == (0, "", "")


def test_the_shells_are_taught_by_the_program_itself(environ: dict[str, str]) -> None:
    """Each of the three has a script."""
    for shell in ("bash", "zsh", "fish"):
        called = call(env={**environ, "_SCHEDCTL_COMPLETE": f"{shell}_source"})

        assert called.code == 0
        assert f"{shell}_complete" in called.out


def test_completion_uses_the_socket_on_the_line(
    daemon: StubDaemon, environ: dict[str, str], folder: Path
) -> None:
    """`--socket` typed before the id holds for its completion."""
    daemon.jobs(job("nightly"))
    elsewhere = {**environ, "SCHEDULER_SOCKET": str(folder / "none.sock")}

    assert words(complete(elsewhere, "pause", "--socket", str(daemon.socket), "n")) == ["nightly"]
