from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import job
from tests.cli.support.stub import Answer, StubDaemon, problem

TOML = 'cron = "30 2 * * *"\ncommand = ["/bin/true"]\nretry = { attempts = 2 }\n'
TABLE = {"cron": "30 2 * * *", "command": ["/bin/true"], "retry": {"attempts": 2}}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "job.toml"


@pytest.mark.parametrize(
    "text",
    [
        TOML,
        json.dumps(TABLE),
        '[jobs.nightly]\ncron = "30 2 * * *"\ncommand = ["/bin/true"]\n[jobs.nightly.retry]\nattempts = 2\n',
    ],
)
def test_add_sends_the_table_of_one_job(
    schedctl: Schedctl, daemon: StubDaemon, written: Path, text: str
) -> None:
    """TOML, JSON and a job file with one job say the same."""
    written.write_text(text)
    daemon.on("POST", "/v1/jobs", Answer(status=201, body=job(origin="api")))

    called = schedctl("add", "nightly", "--file", str(written))

    assert called.code == 0
    assert called.out.startswith("nightly added active next fire 2037-01-01")
    assert daemon.mutations() == [("POST", "/v1/jobs", {"id": "nightly", "definition": TABLE})]


def test_add_reads_stdin(schedctl: Schedctl, daemon: StubDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--file -`."""
    monkeypatch.setattr("sys.stdin", io.StringIO(TOML))
    daemon.on("POST", "/v1/jobs", Answer(status=201, body=job()))

    assert schedctl("add", "nightly", "--file", "-", "--json").json == job()


def test_times_of_toml_become_text(schedctl: Schedctl, daemon: StubDaemon, written: Path) -> None:
    """JSON has no times: they are sent as RFC 3339."""
    written.write_text('at = 2027-01-01T09:00:00+01:00\ncommand = ["true"]\n')
    daemon.on("POST", "/v1/jobs", job())

    schedctl("add", "nightly", "--file", str(written))

    assert daemon.mutations()[0][2]["definition"]["at"] == "2027-01-01T09:00:00+01:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cron = ",
        "{not json",
        "[jobs.other]\nmanual = true\n",
        "[jobs.a]\n[jobs.nightly]\n",
        "\xff",
    ],
)
def test_a_file_that_holds_no_table_of_the_job_is_refused(
    schedctl: Schedctl, daemon: StubDaemon, written: Path, text: str
) -> None:
    """Exit 2, one line that names the file, and nothing was sent."""
    written.write_bytes(text.encode("latin-1"))

    called = schedctl("add", "nightly", "--file", str(written))

    assert called.code == 2
    assert str(written) in called.err
    assert daemon.mutations() == []


def test_edit_replaces_what_it_has_seen(schedctl: Schedctl, daemon: StubDaemon, written: Path) -> None:
    """The definition's ETag goes along, so an edit that came between is not lost."""
    written.write_text(TOML)
    daemon.jobs(job(definition_revision=42))
    daemon.on("PUT", "/v1/jobs/nightly", job())

    called = schedctl("edit", "nightly", "--file", str(written))

    put = daemon.asked[-1]
    assert called.code == 0
    assert (put.method, put.headers["If-Match"], put.body) == ("PUT", '"42"', TABLE)


def test_edit_can_name_the_copy_it_was_made_from(
    schedctl: Schedctl, daemon: StubDaemon, written: Path
) -> None:
    """With `--if-match` the live definition is not looked up; a stale one is exit 4 with what to do."""
    written.write_text(TOML)
    daemon.on("PUT", "/v1/jobs/nightly", problem(412, "stale", "the definition is at revision 43"))

    called = schedctl("edit", "nightly", "--file", str(written), "--if-match", "42")

    assert called.code == 4
    assert "schedctl show nightly" in called.err
    assert [asked.headers.get("If-Match") for asked in daemon.asked] == ['"42"']


def test_edit_of_an_unknown_job_names_the_nearest(
    schedctl: Schedctl, daemon: StubDaemon, written: Path
) -> None:
    """Exit 3."""
    written.write_text(TOML)
    daemon.jobs(job("nightly"))

    assert "did you mean nightly?" in schedctl("edit", "nightli", "--file", str(written)).err


def test_remove_takes_exact_ids(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A glob is no id, and what could not be removed is told."""
    daemon.jobs(job("a"))
    daemon.on("DELETE", "/v1/jobs/a", Answer(status=204))

    called = schedctl("remove", "a", "a*")

    assert called.code == 3
    assert called.out == "a removed\n"
    assert "a*" in called.err


def test_remove_as_json_names_the_job(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Also where the daemon answers without a body."""
    daemon.on("DELETE", "/v1/jobs/a", Answer(status=204))

    assert schedctl("remove", "a", "--json").json == {"id": "a", "removed": True}
