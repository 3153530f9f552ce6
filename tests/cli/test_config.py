from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.stub import StubDaemon

CLEAN = {"added": ["a"], "changed": ["b"], "removed": ["c"], "unchanged": 4, "kept": [], "faults": []}


def test_reload_prints_what_changed(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line a job, and how many stayed as they were."""
    daemon.on("POST", "/v1/reload", CLEAN)

    called = schedctl("reload")

    assert called.code == 0
    assert called.out.splitlines() == ["added a", "changed b", "removed c", "unchanged 4"]


def test_reload_with_faults_is_exit_one(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Each fault names file, line, job and key; what was sound has been applied."""
    fault = {"file": "jobs.d/x.toml", "line": 3, "job": "x", "key": "cron", "message": "minute 61"}
    daemon.on("POST", "/v1/reload", {**CLEAN, "faults": [fault]})

    called = schedctl("reload")

    assert called.code == 1
    assert "added a" in called.out
    assert called.err == "schedctl: jobs.d/x.toml:3: job x: cron: minute 61\n"
    assert schedctl("reload", "--json").json == {**CLEAN, "faults": [fault]}


def test_reload_tells_the_jobs_of_faulty_files_from_unchanged_ones(
    schedctl: Schedctl, daemon: StubDaemon
) -> None:
    """What could not be taken is in force as it was, and is named: it is not what its file says."""
    fault = {"file": "jobs.d/x.toml", "line": 3, "job": "x", "key": "cron", "message": "minute 61"}
    daemon.on("POST", "/v1/reload", {**CLEAN, "kept": ["x", "y"], "faults": [fault]})

    assert schedctl("reload").out.splitlines()[-2:] == ["unchanged 2", "kept as it was  x, y"]


def test_check_finds_what_the_daemon_would(schedctl: Schedctl, daemon: StubDaemon, tmp_path: Path) -> None:
    """Every fault with file, job and key, without asking a daemon; exit 1."""
    (tmp_path / "a.toml").write_text('[jobs.a]\ncron = "61 * * * *"\ncommnd = ["x"]\n')

    called = schedctl("check", "--jobs", str(tmp_path))
    shown = schedctl("check", "--jobs", str(tmp_path), "--json").json

    assert called.code == 1
    assert f"{tmp_path}/a.toml" in called.out
    assert "job a: commnd" in called.out
    assert called.out.splitlines()[-1] == f"{len(shown['faults'])} faults in {tmp_path}"
    assert {fault["key"] for fault in shown["faults"]} >= {"cron", "commnd"}
    assert daemon.asked == []


def test_check_of_sound_files_is_quiet(schedctl: Schedctl, tmp_path: Path) -> None:
    """Exit 0."""
    (tmp_path / "a.toml").write_text('[jobs.a]\nmanual = true\ncommand = ["true"]\n')

    called = schedctl("check", "--jobs", str(tmp_path))

    assert (called.code, called.out) == (0, f"no faults in {tmp_path}\n")


def test_check_tells_what_may_surprise_and_exits_zero(schedctl: Schedctl, tmp_path: Path) -> None:
    """A note has its place and its sentence; it is no fault."""
    (tmp_path / "a.toml").write_text('[jobs.a]\ncron = "*/45 * * * *"\ncommand = ["true"]\n')

    called = schedctl("check", "--jobs", str(tmp_path))
    told = schedctl("check", "--jobs", str(tmp_path), "--json").json

    assert called.code == 0
    assert called.out.splitlines()[0].startswith(f"note {tmp_path}/a.toml")
    assert "60 is no multiple of 45" in called.out
    assert (told["faults"], [note["key"] for note in told["notes"]]) == ([], ["cron"])


def test_check_says_that_it_looks_with_other_eyes_than_the_daemon(
    schedctl: Schedctl, daemon: StubDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can read a file that the daemon's user cannot finds no fault in it."""
    monkeypatch.setattr("scheduler.cli.config.own_user", lambda: "ann")
    (tmp_path / "a.toml").write_text("")

    told = schedctl("check", "--jobs", str(tmp_path))

    assert (told.code, told.out.startswith("note judged as ann, the daemon runs as ")) == (0, True)


def test_check_of_one_file_asks_for_its_folder(schedctl: Schedctl, tmp_path: Path) -> None:
    """The files of a folder are judged together, as the daemon does."""
    (tmp_path / "a.toml").write_text("")

    called = schedctl("check", "--jobs", str(tmp_path / "a.toml"))
    bare = schedctl("check", str(tmp_path / "a.toml"))

    assert (called.code, "name the folder" in called.err) == (2, True)
    assert (bare.code, f"check --jobs {tmp_path};" in bare.err) == (2, True)


def test_check_of_a_faulty_configuration_is_exit_one(schedctl: Schedctl, tmp_path: Path) -> None:
    """The daemon's own file is checked first."""
    config = tmp_path / "scheduler.toml"
    config.write_text('timezone = "Mars"\n')

    called = schedctl("check", "--config", str(config))

    assert called.code == 1
    assert "Mars" in called.out
