import os
from pathlib import Path

import pytest

from scheduler.config.jobdirs import Loaded, load_job_dirs
from scheduler.config.settings import Settings

GOOD = '[jobs.{0}]\nevery = "5s"\nshell = "true"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.d"
    path.mkdir()
    return path


def load(*folders: Path) -> Loaded:
    return load_job_dirs(folders, Settings())


def ids(loaded: Loaded) -> list[str]:
    return [definition.id for file in loaded.files for definition in file.definitions]


def write(folder: Path, name: str, *jobs: str) -> Path:
    path = folder / name
    path.write_text("".join(GOOD.format(job) for job in jobs))
    return path


def test_files_are_read_in_the_order_of_their_names(folder: Path) -> None:
    """Every *.toml file counts, sorted; several jobs in a file are fine."""
    write(folder, "b.toml", "third")
    write(folder, "a.toml", "first", "second")

    loaded = load(folder)

    assert ids(loaded) == ["first", "second", "third"]
    assert loaded.complete
    assert loaded.faults == ()


def test_hidden_files_and_backups_are_skipped_and_others_are_named(folder: Path) -> None:
    """What editors leave behind is no job file; what looks like a mistake is listed."""
    write(folder, "a.toml", "a")
    for name in (".a.toml.swp", ".hidden.toml", "a.toml~", "#a.toml#", ".#a.toml", "b.tml", "README"):
        (folder / name).write_text("no toml at all [")

    loaded = load(folder)

    assert ids(loaded) == ["a"]
    assert loaded.faults == ()
    assert loaded.ignored == (f"{folder}/README", f"{folder}/b.tml")


def test_one_bad_file_keeps_no_other_from_loading(folder: Path) -> None:
    """Of six files the sound ones load, and each bad one has a fault with file and line (B58)."""
    write(folder, "1-good.toml", "good")
    (folder / "2-syntax.toml").write_text("[jobs.b]\nevery = \n")
    (folder / "3-fields.toml").write_text('[jobs.c]\ncron = "* * * *"\nshell = "true"\n')
    (folder / "4-past.toml").write_text(GOOD.format("past") + "end_at = 2020-01-01T00:00:00Z\n")
    (folder / "5-zone.toml").write_text(GOOD.format("d") + 'timezone = "Europe/Nowhere"\n')
    (folder / "6-latin.toml").write_bytes(b'[jobs.e]\nevery = "5s"\nshell = "gr\xfc\xdfe"\n')

    loaded = load(folder)

    assert ids(loaded) == ["good", "past"]
    assert loaded.complete
    assert [(Path(fault.file or "").name, fault.line) for fault in loaded.faults] == [
        ("2-syntax.toml", 2),
        ("3-fields.toml", 2),
        ("5-zone.toml", 4),
        ("6-latin.toml", 3),
    ]
    assert "UTF-8" in loaded.faults[3].message


def test_a_file_is_taken_whole_or_not_at_all(folder: Path) -> None:
    """One faulty job keeps the whole file out; its ids are known all the same."""
    (folder / "a.toml").write_text(GOOD.format("fine") + "[jobs.bad]\n")

    (file,) = load(folder).files

    assert file.definitions == ()
    assert file.ids == frozenset({"fine", "bad"})


def test_what_cannot_be_read_is_told(folder: Path) -> None:
    """A dangling link, a folder and a FIFO each give a fault, and nothing hangs (B58)."""
    write(folder, "a.toml", "a")
    (folder / "b.toml").symlink_to("nowhere.toml")
    (folder / "c.toml").mkdir()
    os.mkfifo(folder / "d.toml")

    loaded = load(folder)

    assert ids(loaded) == ["a"]
    assert [fault.file for fault in loaded.faults] == [f"{folder}/{name}.toml" for name in "bcd"]
    assert "nowhere.toml, which does not exist" in loaded.faults[0].message
    assert "not a regular file" in loaded.faults[1].message
    assert "not a regular file" in loaded.faults[2].message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_told(folder: Path) -> None:
    """An unreadable file gives a fault that says for whom it must be readable."""
    write(folder, "a.toml", "a").chmod(0)

    (fault,) = load(folder).faults

    assert "Permission denied" in fault.message
    assert "the user that the daemon runs as" in fault.message


def test_a_broken_text_keeps_the_ids_that_can_be_seen_in_it(folder: Path) -> None:
    """A half-written file still says which jobs it is about; an unreadable one does not."""
    (folder / "a.toml").write_text(GOOD.format("one") + '[jobs.two]\nshell = "ha')
    (folder / "b.toml").symlink_to("nowhere")

    half, unread = load(folder).files

    assert half.ids == frozenset({"one", "two"})
    assert unread.ids is None


@pytest.mark.parametrize("content", [None, "", "[jobs]\n", "# nothing\n", "\ufeff# with a byte order mark\n"])
def test_a_file_without_jobs_makes_a_folder_trustworthy(folder: Path, content: str | None) -> None:
    """A folder with an empty job file says `no jobs`; one without any file says nothing."""
    if content is not None:
        (folder / "none.toml").write_text(content, encoding="utf-8")

    loaded = load(folder)

    assert ids(loaded) == []
    assert loaded.complete is (content is not None)
    assert len(loaded.faults) == (content is None)


def test_a_folder_that_says_nothing_is_told_with_the_way_out(folder: Path) -> None:
    """Empty and missing folders, and a file in the place of a folder, are faults that say what to do."""
    (folder / "notes.txt").write_text("")
    missing, file = folder.parent / "missing", write(folder.parent, "file", "x")

    loaded = load(folder, missing, file)

    assert loaded.distrusted == {str(folder), str(missing), str(file)}
    assert [fault.file for fault in loaded.faults] == [str(folder), str(missing), str(file)]
    assert "put an empty file there" in loaded.faults[0].message
    assert "No such file or directory" in loaded.faults[1].message
    assert "Not a directory" in loaded.faults[2].message


def test_an_id_in_two_files_is_a_fault_that_names_both(folder: Path) -> None:
    """Neither file silently wins (B62); the fault has the line of the second place."""
    first, second = write(folder, "a.toml", "same", "one"), write(folder, "b.toml", "two", "same")

    loaded = load(folder)

    (fault,) = loaded.faults
    assert loaded.conflicts == {"same": (str(first), str(second))}
    assert str(first) in fault.message
    assert (fault.file, fault.job) == (str(second), "same")
    assert second.read_text().splitlines()[(fault.line or 0) - 1].startswith("[jobs.same]")


def test_a_faulty_file_takes_part_in_conflicts(folder: Path) -> None:
    """An id that also stands in a file with faults is in two files all the same."""
    write(folder, "a.toml", "same")
    (folder / "b.toml").write_text(GOOD.format("same") + "tiemout = 5\n")

    assert list(load(folder).conflicts) == ["same"]


def test_a_name_that_cannot_be_shown_is_told(folder: Path) -> None:
    """A file name with control characters or no UTF-8 is not read, and told in printable form."""
    write(folder, "a.toml", "a")
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.toml")).write_text("")
    (folder / "c\n.toml").write_text("")

    loaded = load(folder)

    assert ids(loaded) == ["a"]
    assert len(loaded.faults) == 2
    for fault in loaded.faults:
        assert str(fault).isprintable()
        assert "rename it" in fault.message


def test_content_is_read_anew_each_time(folder: Path) -> None:
    """A change of one digit with all times set to zero is seen (B61)."""
    path = folder / "a.toml"
    path.write_text('[jobs.a]\nevery = "5s"\nshell = "true"\n')
    os.utime(path, (0, 0))
    before = load(folder).files[0].definitions

    path.write_text('[jobs.a]\nevery = "6s"\nshell = "true"\n')
    os.utime(path, (0, 0))

    assert load(folder).files[0].definitions != before


def test_a_swapped_link_is_followed(folder: Path) -> None:
    """A folder reached through a link is read where the link points now (B61)."""
    write(folder, "a.toml", "old")
    other = folder.parent / "other"
    other.mkdir()
    write(other, "a.toml", "new")
    link = folder.parent / "current"
    link.symlink_to(folder)
    assert ids(load(link)) == ["old"]

    link.unlink()
    link.symlink_to(other)

    assert ids(load(link)) == ["new"]


def test_no_folders_means_no_file_jobs() -> None:
    """A daemon that is configured without folders has nothing to distrust."""
    assert load().complete
