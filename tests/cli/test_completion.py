from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
    assert words(complete(environ, "re")) == [
        "resume",
        "retry",
        "retry-now",
        "remove",
        "reload",
        "restore",
    ]


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


def test_the_verb_completion_prints_the_scripts(environ: dict[str, str]) -> None:
    """As the program itself teaches them; an unknown shell is usage."""
    for shell in ("bash", "zsh", "fish"):
        called = call("completion", shell, env=environ)
        assert called.code == 0
        assert f"{shell}_complete" in called.out
    assert call("completion", "csh", env=environ).code == 2


@pytest.fixture
def shell(daemon: StubDaemon, environ: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment of a shell that finds schedctl, whose daemon has three jobs."""
    daemon.jobs(job("export-a"), job("export-b", description="By hand, rarely"), job("backup"))
    program = folder / "schedctl"
    program.write_text(f"#!{sys.executable}\nfrom scheduler.cli.main import main\nmain()\n")
    program.chmod(0o755)
    root = str(Path(__file__).parents[2])
    path = f"{folder}:{environ['PATH']}"
    return {**environ, "PATH": path, "PYTHONPATH": root, "HOME": str(folder), "TERM": "xterm"}


def test_bash_completes_live_ids_with_the_script(shell: dict[str, str]) -> None:
    """A real bash that has read it offers the ids of the daemon."""
    asked = (
        'eval "$(schedctl completion bash)"; COMP_WORDS=(schedctl pause exp); COMP_CWORD=2;'
        " _schedctl_completion schedctl; printf '%s\\n' \"${COMPREPLY[@]}\""
    )

    done = subprocess.run(
        ["bash", "-c", asked], env=shell, capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout == "export-a\nexport-b\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes_live_ids_with_the_script(shell: dict[str, str]) -> None:
    """A real fish that has read it offers the ids, each with its whole description."""
    asked = "schedctl completion fish | source; complete -C 'schedctl pause exp'"

    done = subprocess.run(
        ["fish", "-c", asked], env=shell, capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout == "export-a\tactive\nexport-b\tBy hand, rarely\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes_live_ids_with_the_script(shell: dict[str, str]) -> None:
    """A real zsh on a terminal writes out as much as the ids have in common, or the only one that fits."""
    ours, theirs = pty.openpty()
    zsh = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=shell, start_new_session=True
    )
    os.close(theirs)
    try:
        os.write(ours, b'autoload -Uz compinit; compinit -u -D; eval "$(schedctl completion zsh)"\n')
        os.write(ours, b"echo rea''dy\n")
        wait_for(ours, b"\nready")
        os.write(ours, b"schedctl pause exp\t")
        wait_for(ours, b"export-")
        os.write(ours, b"\x15schedctl pause ba\t")
        wait_for(ours, b"backup")
    finally:
        zsh.kill()
        zsh.wait()
        os.close(ours)


def wait_for(terminal: int, words: bytes) -> None:
    """These words have appeared on the terminal."""
    seen, until = b"", time.monotonic() + 30
    while words not in seen:
        assert time.monotonic() < until, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65_536)
