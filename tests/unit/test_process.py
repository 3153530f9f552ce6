"""The process tells what keeps it from starting, once."""

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
