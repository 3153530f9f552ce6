from pathlib import Path

import pytest

from scheduler.config.check import check, examine
from scheduler.config.paths import config_file

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "jobs.d").mkdir()
    (tmp_path / "scheduler.toml").write_text("")
    return tmp_path / "scheduler.toml"


def test_the_demo_has_no_faults() -> None:
    """The configuration that `make run` starts is sound."""
    assert check(ROOT / "config" / "scheduler.toml", {}) == []


def test_faults_of_the_job_files_are_found(config: Path) -> None:
    """Faults in files, between files and of folders are found as the daemon would find them."""
    job = '[jobs.same]\nmanual = true\nshell = "true"\n'
    (config.parent / "jobs.d" / "a.toml").write_text(job)
    (config.parent / "jobs.d" / "b.toml").write_text(job)
    (config.parent / "jobs.d" / "c.toml").write_text("[jobs.c]\ngroup = 'g'\nmanual = true\nshell = 'x'\n")

    found = check(config, {})

    assert [fault.job for fault in found] == ["c", "same"]


def test_job_files_are_judged_by_the_daemons_settings(config: Path) -> None:
    """A group that the daemon's file has is known to the job files."""
    config.write_text("[groups.g]\nmax_running = 1\n")
    (config.parent / "jobs.d" / "c.toml").write_text("[jobs.c]\ngroup = 'g'\nmanual = true\nshell = 'x'\n")

    assert check(config, {}) == []


def test_faults_of_the_daemons_file_come_first(config: Path) -> None:
    """With a faulty file of its own the daemon does not start, so nothing else can be said."""
    config.write_text("max_runing = 1\n")

    (fault,) = check(config, {})

    assert fault.key == "max_runing"


def test_flags_count_as_for_the_daemon(config: Path, tmp_path: Path) -> None:
    """--jobs replaces the folders of the file."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.toml").write_text("[jobs.x]\n")

    assert {fault.job for fault in check(config, {}, jobs=[other])} == {"x"}
    assert check(config, {}) == []


def test_what_may_surprise_is_a_note_and_no_fault(config: Path) -> None:
    """A cron expression that is sound but may not do as it was meant is named with its job and file."""
    file = config.parent / "jobs.d" / "a.toml"
    file.write_text('[jobs.a]\ncron = "0 0 13 * 5"\nshell = "true"\n')

    found = examine(config_file(config, {}), {})

    (note,) = found.notes
    assert (list(found.faults), note.job, note.key, note.file) == ([], "a", "cron", str(file))
    assert "either one is enough" in note.message


def test_an_empty_folder_is_a_note(config: Path) -> None:
    """A check knows of no job that is in force: what the folder lacks is said, and is no fault."""
    for file in (config.parent / "jobs.d").iterdir():
        file.unlink()

    found = examine(config_file(config, {}), {})

    assert list(found.faults) == []
    assert ["holds no job file" in note.message for note in found.notes] == [True]
