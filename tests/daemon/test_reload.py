"""Issue 2, point 10: job files read again by signal and by request: nothing untouched is touched."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.support.daemon import Daemon

_A = '[jobs.a]\nevery = "1h"\ncommand = ["true"]\n'
_B = '[jobs.b]\nevery = "1h"\ncommand = ["true"]\n'


def _seen(daemon: Daemon, job: str) -> tuple[object, ...]:
    row = daemon.job(job)
    return row["revision"], row["next_fire_at"], row["status"], row["definition"]


def test_sighup_applies_what_changed_and_leaves_the_rest_alone() -> None:
    """I4: a new job is there, a changed one is planned anew, an untouched one keeps revision and slot."""
    with Daemon(_A) as daemon:
        before = _seen(daemon, "a")
        daemon.write(_B, "b.toml")
        daemon.signal(signal.SIGHUP)
        daemon.told("job_added", job="b")
        assert _seen(daemon, "a") == before
        daemon.write(_B.replace("1h", "2h"), "b.toml")
        daemon.signal(signal.SIGHUP)
        daemon.told("job_changed", job="b")
        assert daemon.job("b")["trigger"] == {"kind": "every", "every": 7200}
        assert _seen(daemon, "a") == before


def test_change_during_a_reload_is_not_missed() -> None:
    """Of many changes, each with its SIGHUP right behind it, the last one is in force in the end."""
    with Daemon(_A) as daemon:
        for hours in range(2, 22):
            daemon.write(_A.replace("1h", f"{hours}h"))
            daemon.signal(signal.SIGHUP)
        daemon.until(lambda: daemon.job("a")["trigger"]["every"] == 21 * 3600)


def test_bad_file_keeps_its_jobs_and_is_reported_with_all_faults() -> None:
    """I14: the answer and the status name file, job and key; the good file next to it is applied."""
    with Daemon(_A) as daemon:
        before = _seen(daemon, "a")
        daemon.write('[jobs.a]\nevery = "1h"\ncomand = ["true"]\ntimeout = "soon"\n')
        daemon.write(_B, "b.toml")
        answer = daemon.post("/v1/reload")
        assert answer["added"] == ["b"]
        assert {fault["key"] for fault in answer["faults"]} >= {"comand", "timeout"}
        assert {fault["job"] for fault in answer["faults"]} == {"a"}
        assert any("command" in fault["message"] for fault in answer["faults"])
        assert daemon.get("/v1/status")["faults"] == answer["faults"]
        assert _seen(daemon, "a") == before
        daemon.write(_A)
        assert daemon.post("/v1/reload")["faults"] == []


@pytest.mark.parametrize("how", ["emptied", "missing", "torn"])
def test_emptied_or_missing_directory_removes_nothing(how: str) -> None:
    """I14: a mount that failed is not "remove all"; the jobs stay and the folder is reported."""
    with Daemon(_A + _B) as daemon:
        folder = daemon.folder / "jobs.d"
        if how == "torn":
            daemon.write(_A[: len(_A) // 2])
        else:
            shutil.rmtree(folder)
        if how == "emptied":
            folder.mkdir()
        answer = daemon.post("/v1/reload")
        assert answer["removed"] == []
        assert answer["faults"]
        assert [row["id"] for row in daemon.get("/v1/jobs")["items"]] == ["a", "b"]


def test_pause_stays_through_edit_and_reload() -> None:
    """I4: a changed schedule does not lift a pause; the resume follows the new schedule."""
    with Daemon(_A) as daemon:
        daemon.post("/v1/jobs/a/pause", {"reason": "audit"})
        daemon.write(_A.replace('every = "1h"', 'every = "1s"'))
        daemon.post("/v1/reload")
        row = daemon.job("a")
        assert (row["status"], row["pause"]["note"], row["next_fire_at"]) == ("paused", "audit", None)
        daemon.post("/v1/jobs/a/resume", {})
        daemon.until(lambda: any(run["state"] == "succeeded" for run in daemon.runs("a")))


def test_change_made_while_the_daemon_was_down_is_an_edit_at_the_next_start() -> None:
    """I4: a removed job is gone, a changed one follows its file, a pause is still there."""
    with Daemon(_A + _B) as daemon:
        daemon.post("/v1/jobs/a/pause", {"reason": "audit"})
        daemon.stop()
        daemon.write(_A.replace("1h", "3h"))
        daemon.start()
        row = daemon.job("a")
        assert (row["status"], row["trigger"]["every"]) == ("paused", 10800)
        assert daemon.ask("GET", "/v1/jobs/b").status == 404


def test_bad_files_at_the_first_start_do_not_stop_the_good_ones() -> None:
    """I14: the daemon is ready with what is sound, and says what is not."""
    daemon = Daemon(_A)
    daemon.write("[jobs.broken\n", "syntax.toml")
    daemon.write('[jobs.c]\ncron = "* * * *"\ncommand = ["true"]\n', "fields.toml")
    (daemon.folder / "jobs.d" / "bytes.toml").write_bytes(b"\xff\xfe")
    (daemon.folder / "jobs.d" / "dangling.toml").symlink_to(daemon.folder / "nowhere")
    with daemon:
        assert [row["id"] for row in daemon.get("/v1/jobs")["items"]] == ["a"]
        files = {fault["file"].rsplit("/")[-1] for fault in daemon.get("/v1/status")["faults"]}
        assert files == {"syntax.toml", "fields.toml", "bytes.toml", "dangling.toml"}
