"""`edit` in an editor: a shell script stands for the person."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import job
from tests.cli.support.stub import Answer, Asked, StubDaemon, problem

DEFINITION = {"command": ["/bin/true"], "every": 3600, "retry": {"attempts": 2, "delay": 0.5}}


@pytest.fixture
def editor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that a test writes; `$1` is the file."""
    script = folder / "editor.sh"
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"sh {script}")
    monkeypatch.setenv("TMPDIR", str(folder))
    return script


@pytest.fixture
def served(daemon: StubDaemon) -> StubDaemon:
    """A daemon with one job of the API, which takes any definition."""
    daemon.jobs(job("mine", origin="api", definition=DEFINITION))
    daemon.on("PUT", "/v1/jobs/mine", job("mine", origin="api"))
    return daemon


def test_an_edit_is_applied_to_the_copy_that_was_opened(
    schedctl: Schedctl, served: StubDaemon, editor: Path, folder: Path
) -> None:
    """The whole table goes back with If-Match, and the file is gone."""
    editor.write_text('sed -i "s/3600/60/" "$1"')

    called = schedctl("edit", "mine")

    assert (called.code, called.out.split()[:2]) == (0, ["mine", "edited"])
    [put] = [asked for asked in served.asked if asked.method == "PUT"]
    assert put.body == {**DEFINITION, "every": 60}
    assert put.headers["If-Match"] == '"3"'
    assert not list(folder.glob("schedctl-edit-*"))


@pytest.mark.parametrize(
    "script", ["true", 'touch "$1"', ': > "$1"', 'echo "# a thought" >> "$1"', 'sed -i "s/^#.*//" "$1"']
)
def test_what_means_the_same_changes_nothing(
    schedctl: Schedctl, served: StubDaemon, editor: Path, script: str
) -> None:
    """Left as it was, emptied, or with other comments: nothing is asked of the daemon, exit 0."""
    editor.write_text(script)

    called = schedctl("edit", "mine")

    assert (called.code, called.out) == (0, "mine left as it was\n")
    assert served.mutations() == []


def test_an_editor_that_fails_changes_nothing(schedctl: Schedctl, served: StubDaemon, editor: Path) -> None:
    """Exit 1, also if the text was changed before."""
    editor.write_text('sed -i "s/3600/60/" "$1"; exit 3')

    called = schedctl("edit", "mine")

    assert called.code == 1
    assert "nothing was changed" in called.err
    assert served.mutations() == []


def test_a_faulty_text_is_opened_again_with_its_faults(
    schedctl: Schedctl, served: StubDaemon, editor: Path, folder: Path
) -> None:
    """Each round shows what is wrong now, and only that, until it is right."""

    def judge(asked: Asked) -> Answer:
        if asked.body.get("every") == 7:
            fault = {"message": "too often", "key": "every", "file": None, "line": None, "job": None}
            return problem(422, "invalid", "1 fault", faults=[fault])
        return Answer(body=job("mine", origin="api"))

    served.on("PUT", "/v1/jobs/mine", judge)
    editor.write_text(
        f'cp "$1" {folder}/seen.$(ls {folder} | grep -c seen)\n'
        f"case $(ls {folder} | grep -c seen) in\n"
        '1) echo "nonsense" >> "$1" ;;\n'
        '2) sed -i "s/^nonsense//; s/3600/7/" "$1" ;;\n'
        '3) sed -i "s/every = 7/every = 60/" "$1" ;;\n'
        "esac\n"
    )

    called = schedctl("edit", "mine")

    seen = [path.read_text() for path in sorted(folder.glob("seen.*"))]
    assert called.code == 0
    assert [text.count("#! ") for text in seen] == [0, 1, 1]
    assert "TOML" in seen[1].splitlines()[0]
    assert seen[2].splitlines()[0] == "#! every: too often"


def test_a_faulty_text_left_as_it_is_ends_with_its_faults(
    schedctl: Schedctl, served: StubDaemon, editor: Path
) -> None:
    """Exit 2, and what was written is kept."""
    editor.write_text('grep -q "#!" "$1" || echo "nonsense" >> "$1"')

    called = schedctl("edit", "mine")

    assert called.code == 2
    kept = Path(called.err.split("is kept in ")[1].split("\n")[0])
    assert "nonsense" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0 or kept.parent.stat().st_mode & 0o077 == 0


def test_an_edit_from_an_old_copy_is_refused_and_kept(
    schedctl: Schedctl, served: StubDaemon, editor: Path
) -> None:
    """Somebody else's edit is not overwritten: exit 4."""
    served.on("PUT", "/v1/jobs/mine", problem(412, "stale", "it was changed"))
    editor.write_text('sed -i "s/3600/60/" "$1"')

    called = schedctl("edit", "mine")

    assert called.code == 4
    assert "every = 60" in Path(called.err.split("is kept in ")[1].split("\n")[0]).read_text()


def test_a_job_of_a_file_is_edited_there(schedctl: Schedctl, daemon: StubDaemon, editor: Path) -> None:
    """No editor is opened: exit 4 and the file's name."""
    daemon.jobs(job("filed", origin="file", origin_file="/etc/schedulerd/jobs.d/a.toml"))
    editor.write_text(f"touch {editor}.opened")

    called = schedctl("edit", "filed")

    assert called.code == 4
    assert "/etc/schedulerd/jobs.d/a.toml" in called.err
    assert not Path(f"{editor}.opened").exists()


def test_an_unknown_job_is_not_found(schedctl: Schedctl, served: StubDaemon, editor: Path) -> None:
    """Exit 3 with the nearest."""
    called = schedctl("edit", "mime")

    assert called.code == 3
    assert "did you mean mine?" in called.err
