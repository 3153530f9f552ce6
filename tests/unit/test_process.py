"""The process tells what keeps it from starting, once."""

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.daemon import parser
from scheduler.process import live
from scheduler.signals import EarlySignals


def test_a_fault_of_the_configuration_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists its faults; they do not come again below it."""
    config = tmp_path / "scheduler.toml"
    config.write_text("max_runing = 3\n")

    code = live(parser().parse_args(["--config", str(config), "--state", str(tmp_path)]), EarlySignals())

    assert (code, capsys.readouterr().err.count("did you mean max_running?")) == (1, 1)


def test_an_option_is_written_in_full() -> None:
    """One that is cut short may mean another one in the next version."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--stat", "/x"])


def test_the_daemon_imports_nothing_that_it_does_not_need() -> None:
    """A start takes no time for what draws on terminals; a handler may import it all the same."""
    script = """
import sys
from scheduler.daemon import quick_imports
with quick_imports():
    import scheduler.process
assert not [name for name in sys.modules if name.partition(".")[0] in ("rich", "pygments")]
import rich.console
"""
    subprocess.run([sys.executable, "-c", script], check=True)
