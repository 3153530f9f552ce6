from pathlib import Path

import pytest

from scheduler.config.reload import Changes
from scheduler.model.jobs import JobId, Origin
from scheduler.store.values import ChangeKind, Peer
from tests.support.jobfiles import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "jobs.d"
    folder.mkdir()
    return Files(folder)


def told(changes: Changes) -> dict[str, list[str]]:
    """What changed, by kind, with the empty kinds left out."""
    kinds = {
        "added": [job.id for job in changes.added],
        "changed": [job.id for job in changes.changed],
        "moved": [job.id for job in changes.moved],
        "removed": list(changes.removed),
        "unchanged": list(changes.unchanged),
        "kept": list(changes.kept),
    }
    return {kind: sorted(ids) for kind, ids in kinds.items() if ids}


def test_each_job_gets_its_own_fate(files: Files) -> None:
    """Added, changed, removed and unchanged jobs are told apart."""
    files.jobs("a.toml", "stays", "changes", "goes")
    assert told(files.reload()) == {"added": ["changes", "goes", "stays"]}

    files.jobs("a.toml", "stays", "comes")
    files.jobs("b.toml", "changes", every="6s")

    assert told(files.reload()) == {
        "added": ["comes"],
        "changed": ["changes"],
        "removed": ["goes"],
        "unchanged": ["stays"],
    }


def test_a_reload_of_the_same_files_changes_nothing(files: Files) -> None:
    """Comments, order and spelling of values are no change."""
    files.write("a.toml", '[jobs.a]\nevery = "60s"\nshell = "x"\n[jobs.b]\nmanual = true\nshell = "x"\n')
    files.reload()

    files.write(
        "a.toml",
        '[jobs.b]\nshell = "x"\nmanual = true\n# later\n[jobs.a]\nshell = "x"\nevery = "1m"\npriority = 0',
    )

    assert told(files.reload()) == {"unchanged": ["a", "b"]}


def test_a_renamed_file_only_moves_its_jobs(files: Files) -> None:
    """History, pause and anchor go with the id: another file alone is no new definition (B62)."""
    files.jobs("a.toml", "x")
    files.reload()

    (files.folder / "a.toml").rename(files.folder / "b.toml")
    changes = files.reload()

    assert told(changes) == {"moved": ["x"]}
    assert changes.moved[0].file == str(files.folder / "b.toml")


def test_a_broken_edit_keeps_the_jobs_of_its_file(files: Files) -> None:
    """The last good definitions of a file with faults stay in force, and the fault is told (B58)."""
    files.jobs("a.toml", "x", "y")
    files.jobs("b.toml", "z")
    files.reload()

    files.write(
        "a.toml", '[jobs.x]\nevery = "9s"\nshell = "true"\n[jobs.y]\ncron = "* * * *"\nshell = "true"\n'
    )
    changes = files.reload()

    assert told(changes) == {"kept": ["x", "y"], "unchanged": ["z"]}
    assert [(fault.line, fault.job) for fault in changes.faults] == [(5, "y")]


@pytest.mark.parametrize("end", range(0, 60, 7))
def test_a_half_written_file_removes_and_changes_no_job(files: Files, end: int) -> None:
    """Whatever part of a file is there, no job of it is removed unless the rest is sound TOML (B61)."""
    whole = '[jobs.one]\nevery = "5s"\nshell = "echo one"\n[jobs.two]\nevery = "7s"\nshell = "echo two"\n'
    files.write("a.toml", whole)
    files.write("b.toml", "")
    files.reload()

    files.write("a.toml", whole[:end].rstrip("\n") + "[jobs")
    changes = files.reload()

    assert told(changes) == {"kept": ["one", "two"]}


def test_a_removed_file_removes_its_jobs(files: Files) -> None:
    """Deleting a file beside others is meant: its jobs go (B59)."""
    files.jobs("a.toml", "x")
    files.jobs("b.toml", "y")
    files.write("c.toml", "broken [")
    files.reload()

    (files.folder / "a.toml").unlink()

    assert told(files.reload()) == {"removed": ["x"], "unchanged": ["y"]}


@pytest.mark.parametrize("vanish", ["empty", "missing", "replaced by a file"])
def test_a_folder_that_says_nothing_removes_nothing(files: Files, vanish: str) -> None:
    """An emptied or missing folder is not `remove all jobs` (B58)."""
    files.jobs("a.toml", "x", "y")
    files.reload()

    (files.folder / "a.toml").unlink()
    if vanish != "empty":
        files.folder.rmdir()
    if vanish == "replaced by a file":
        files.folder.write_text("")
    changes = files.reload()

    assert told(changes) == {"kept": ["x", "y"]}
    assert len(changes.faults) == 1


def test_all_jobs_can_be_removed_on_purpose(files: Files) -> None:
    """One file without jobs says what an empty folder does not."""
    files.jobs("a.toml", "x", "y")
    files.reload()

    (files.folder / "a.toml").unlink()
    files.write("none.toml", "")

    assert told(files.reload()) == {"removed": ["x", "y"]}


def test_each_folder_answers_for_itself(files: Files, tmp_path: Path) -> None:
    """An empty folder keeps its own jobs, and does not keep those of a folder that can be trusted."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.toml").write_text('[jobs.theirs]\nmanual = true\nshell = "true"\n')
    files.jobs("a.toml", "mine", "also-mine")
    files.reload(other)

    (other / "b.toml").unlink()
    files.jobs("a.toml", "mine")

    assert told(files.reload(other)) == {"kept": ["theirs"], "removed": ["also-mine"], "unchanged": ["mine"]}


def test_a_folder_taken_out_of_the_configuration_takes_its_jobs_along(files: Files, tmp_path: Path) -> None:
    """Jobs of a folder that is no longer configured go, unless another folder cannot be listed just now."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.toml").write_text('[jobs.theirs]\nmanual = true\nshell = "true"\n')
    files.jobs("a.toml", "mine")
    files.reload(other)

    assert told(files.reload(tmp_path / "missing")) == {"kept": ["theirs"], "unchanged": ["mine"]}
    assert told(files.reload()) == {"removed": ["theirs"], "unchanged": ["mine"]}


def test_an_id_in_two_files_leaves_what_was_in_force(files: Files) -> None:
    """At first neither is taken, later what was in force stays; other jobs of both files go on (B62)."""
    files.jobs("a.toml", "same", "one")
    files.jobs("b.toml", "same", "two", every="7s")
    assert told(files.reload()) == {"added": ["one", "two"]}

    files.jobs("b.toml", "two", every="7s")
    assert told(files.reload()) == {"added": ["same"], "unchanged": ["one", "two"]}

    files.jobs("b.toml", "same", "two", every="7s")
    changes = files.reload()

    assert told(changes) == {"kept": ["same"], "unchanged": ["one", "two"]}
    assert "a.toml" in changes.faults[0].message
    assert "b.toml" in changes.faults[0].message


def test_a_job_moved_into_a_faulty_file_is_not_removed(files: Files) -> None:
    """A job that was taken out of one file and stands in another one, which has faults, stays as it is."""
    files.jobs("a.toml", "x", "moves")
    files.jobs("b.toml", "y")
    files.reload()

    files.jobs("a.toml", "x")
    files.write("b.toml", '[jobs.y]\nevery = "5s"\nshell = "true"\n[jobs.moves]\nshell = "tr')

    assert told(files.reload()) == {"kept": ["moves", "y"], "unchanged": ["x"]}


def test_a_job_of_an_unreadable_file_is_not_taken_from_another(files: Files) -> None:
    """Nobody can tell whether it stands in both, so it stays, and the fault says why."""
    files.jobs("a.toml", "x")
    files.write("z.toml", "")
    files.reload()

    (files.folder / "a.toml").unlink()
    (files.folder / "a.toml").symlink_to("nowhere")
    files.jobs("b.toml", "x", every="9s")
    changes = files.reload()

    assert told(changes) == {"kept": ["x"]}
    assert "in force from" in changes.faults[-1].message


def test_an_id_of_an_api_job_is_refused(files: Files) -> None:
    """A file does not take over a job that was made through the API; the rest of the file is taken."""
    files.jobs("a.toml", "taken", "free")

    changes = files.reload(api_ids={JobId("taken")})

    assert told(changes) == {"added": ["free"]}
    assert [(fault.job, "through the API" in fault.message) for fault in changes.faults] == [("taken", True)]


def test_the_store_gets_one_change_for_each_job(files: Files) -> None:
    """Adds, changes, moves and removals become definition changes; unchanged and kept jobs do not."""
    files.jobs("a.toml", "stays", "changes", "goes")
    files.jobs("b.toml", "moves")
    files.reload()
    files.jobs("a.toml", "stays", "comes")
    files.jobs("c.toml", "changes", every="6s")
    (files.folder / "b.toml").rename(files.folder / "d.toml")
    peer = Peer(uid=0, gid=0, pid=1)

    changes = files.reload().for_store(peer)

    assert [(change.kind, change.job_id, Path(change.origin_file or "-").name) for change in changes] == [
        (ChangeKind.ADD, "comes", "a.toml"),
        (ChangeKind.CHANGE, "changes", "c.toml"),
        (ChangeKind.MOVE, "moves", "d.toml"),
        (ChangeKind.REMOVE, "goes", "-"),
    ]
    assert {change.origin for change in changes} == {Origin.FILE}
    assert {change.peer for change in changes} == {peer}


def test_an_empty_folder_is_no_fault_before_any_job(files: Files) -> None:
    """A service begins with one; where jobs are in force from files it is a fault, as is a missing folder."""
    assert files.reload().faults == ()

    files.jobs("a.toml", "a")
    files.reload()
    (files.folder / "a.toml").unlink()
    assert ["no job file" in fault.message for fault in files.reload().faults] == [True]

    files.folder.rmdir()
    assert ["cannot be read" in fault.message for fault in files.reload().faults] == [True]


def test_a_missing_folder_is_a_fault_before_any_job(files: Files) -> None:
    """It is not how a service begins."""
    files.folder.rmdir()

    assert ["cannot be read" in fault.message for fault in files.reload().faults] == [True]
