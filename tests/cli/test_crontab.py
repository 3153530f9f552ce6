from __future__ import annotations

import getpass
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.takeover import take_over, whose_jobs
from scheduler.config.crontab import parse_crontab
from scheduler.config.settings import Settings
from scheduler.errors import Conflict
from tests.cli.conftest import Schedctl
from tests.cli.support.client import call

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "crontab-public.jsonl").read_text("utf-8").splitlines()
]
SIMPLE = "MAILTO=root\n30 2 * * * /opt/backup --all\n@reboot /opt/hello\n"


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    return tmp_path / "crontab"


def flags(case: dict[str, Any]) -> list[str]:
    return ["--system"] if case["form"] == "system" else []


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_check_gives_the_expected_entries(schedctl: Schedctl, crontab: Path, case: dict[str, Any]) -> None:
    """Settings, jobs and errors of each text of the corpus; an error is exit code 1."""
    crontab.write_bytes(case["text"].encode())

    called = schedctl("import", "crontab", str(crontab), "--check", "--json", *flags(case))

    assert called.json == case["expect"]
    assert called.code == any(entry["type"] == "error" for entry in case["expect"])


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_what_is_written_is_a_job_file_with_every_job(
    schedctl: Schedctl, crontab: Path, tmp_path: Path, case: dict[str, Any]
) -> None:
    """Each text without errors becomes one readable table a line; any error writes nothing."""
    crontab.write_bytes(case["text"].encode())
    target = tmp_path / "jobs.toml"

    called = schedctl("import", "crontab", str(crontab), "--write", str(target), "-n", "1", *flags(case))

    if any(entry["type"] == "error" for entry in case["expect"]):
        assert called.code == 1
        assert not target.exists()
        return
    jobs = tomllib.loads(target.read_text("utf-8")).get("jobs", {})
    wanted = [entry for entry in case["expect"] if entry["type"] == "job"]
    assert called.code == 0
    assert [_command(table) for table in jobs.values()] == [entry["command"] for entry in wanted]
    assert [table.get("cron", "@reboot") for table in jobs.values()] == [
        entry["schedule"] for entry in wanted
    ]
    assert [table.get("stdin") for table in jobs.values()] == [entry["stdin"] for entry in wanted]
    assert [table.get("user") for table in jobs.values()] == [entry["user"] for entry in wanted]


def _command(table: dict[str, Any]) -> Any:
    return table.get("shell") or table["command"][-1]


def test_without_write_the_coming_times_are_shown(schedctl: Schedctl, crontab: Path) -> None:
    """Three of each job unless told otherwise, of twenty that are compared; the notes are on stderr."""
    crontab.write_text(SIMPLE)

    whole = schedctl("import", "crontab", str(crontab), "--timezone", "UTC")
    short = schedctl("import", "crontab", str(crontab), "--timezone", "UTC", "-n", "1")

    assert whole.code == 0
    assert whole.out.count("02:30:00+00:00") == 3
    assert short.out.count("02:30:00+00:00") == 1
    assert "2 jobs; 20 coming fire times are those of the crontab" in short.out
    assert "MAILTO is not taken over" in whole.err
    assert "@reboot has no time" in whole.err


@pytest.mark.parametrize(
    ("owner", "runner", "told"),
    [
        ("ann", None, "the jobs run as the daemon's user: that should be ann"),
        ("ann", "ann", None),
        ("ann", "schedulerd", "the jobs run as schedulerd, the daemon's user, and not as ann"),
        ("ann", "root", 'add user = "ann"'),
        (None, None, None),
        (None, "root", None),
        (None, "schedulerd", "jobs of bob cannot start: the daemon runs as schedulerd"),
    ],
)
def test_jobs_that_would_run_as_another_user_are_told(
    owner: str | None, runner: str | None, told: str | None
) -> None:
    """As far as a daemon is seen: with its user and what to do."""
    line = "@daily bob x\n" if owner is None else "@daily x\n"

    notes = list(whose_jobs(parse_crontab(line, system=owner is None), owner=owner, runner=runner))

    assert [told in str(note) for note in notes if told] == ([True] if told else [])
    assert len(notes) == bool(told)


def test_the_daemons_user_is_the_owner_of_its_socket(schedctl: Schedctl, crontab: Path) -> None:
    """So an import says whose jobs these will be before the first one fails."""
    crontab.write_text(SIMPLE)

    other = schedctl("import", "crontab", str(crontab), "--owner", "daemon", "--socket", str(crontab))
    own = schedctl("import", "crontab", str(crontab), "--socket", str(crontab))

    assert f"run as {getpass.getuser()}" in other.err or "runs as root" in other.err
    assert "run as" not in own.err


def test_a_system_crontab_that_is_read_as_a_users_is_told(schedctl: Schedctl, crontab: Path) -> None:
    """Every command begins with a user; a command that only looks so beside others is none."""
    crontab.write_text("17 * * * * root\tcd / && true\n@daily daemon x\n")
    doubtful = schedctl("import", "crontab", str(crontab), "--check")
    crontab.write_text("17 * * * * root\tcd / && true\n@daily /bin/x\n")
    sound = schedctl("import", "crontab", str(crontab), "--check")

    assert "the first word of every command is a user (root)" in doubtful.err
    assert "--system" not in sound.err


def test_a_file_in_the_jobs_folder_need_not_be_put_there(
    schedctl: Schedctl, crontab: Path, tmp_path: Path
) -> None:
    """What is left to do is a reload."""
    crontab.write_text("@daily /opt/x\n")
    place = tmp_path / "jobs.d"
    place.mkdir()

    inside = schedctl("import", "crontab", str(crontab), "--write", str(place / "cron.toml"))
    outside = schedctl("import", "crontab", str(crontab), "--write", str(tmp_path / "cron.toml"))

    assert "1 job; 20 coming fire times" in inside.out
    assert "cron.toml; `schedctl reload` puts it in force" in inside.out
    assert "put it into the daemon's jobs folder" in outside.out


def test_json_has_one_line_for_each_job(schedctl: Schedctl, crontab: Path) -> None:
    """Id, line, schedule, table and times."""
    crontab.write_text(SIMPLE)

    backup, hello = schedctl("import", "crontab", str(crontab), "--json", "-n", "2").lines

    assert (backup["id"], backup["line"], backup["schedule"]) == ("backup", 2, "30 2 * * *")
    assert backup["table"]["shell"] == "/opt/backup --all"
    assert len(backup["times"]) == 2
    assert hello["times"] == []


def test_an_error_names_its_line(schedctl: Schedctl, crontab: Path) -> None:
    """On stderr, with what is wrong and the word for it."""
    crontab.write_text("30 2 * * * ok\n61 2 * * * bad\n")

    called = schedctl("import", "crontab", str(crontab))

    assert called.code == 1
    assert called.out == ""
    assert called.err.startswith("schedctl: line 2: ")
    assert called.err.endswith("(bad-minute)\n")


def test_a_file_of_somebody_else_is_not_overwritten(
    schedctl: Schedctl, crontab: Path, tmp_path: Path
) -> None:
    """Only what an import wrote is replaced by an import."""
    crontab.write_text(SIMPLE)
    target = tmp_path / "jobs.toml"
    target.write_text("[jobs.mine]\nmanual = true\n")

    refused = schedctl("import", "crontab", str(crontab), "--write", str(target))
    kept = target.read_text()
    target.unlink()
    first = schedctl("import", "crontab", str(crontab), "--write", str(target))
    again = schedctl("import", "crontab", str(crontab), "--write", str(target))

    assert refused.code == 4
    assert kept == "[jobs.mine]\nmanual = true\n"
    assert first.code == again.code == 0


def test_an_edited_job_file_is_not_overwritten(schedctl: Schedctl, crontab: Path, tmp_path: Path) -> None:
    """What was changed by hand since the import would be lost: exit 4, unless that is meant."""
    crontab.write_text(SIMPLE)
    target = tmp_path / "jobs.toml"
    write = ["import", "crontab", str(crontab), "--write", str(target)]
    schedctl(*write)
    written = target.read_text()
    edited = written + "# and a word of mine\n"
    target.write_text(edited)

    refused, kept = schedctl(*write), target.read_text()
    forced = schedctl(*write, "--force")

    assert (refused.code, "--force" in refused.err, kept) == (4, True, edited)
    assert (forced.code, target.read_text()) == (0, written)


def test_a_percent_sign_that_ends_a_command_is_told(schedctl: Schedctl, crontab: Path) -> None:
    r"""It is right so, and seldom meant: the rest is stdin; one that is written `\%` is not told."""
    crontab.write_text("0 1 * * * tar cf a-$(date +%F).tar x\n0 2 * * * date +\\%F\n")

    told = [line for line in schedctl("import", "crontab", str(crontab)).err.splitlines() if "`%`" in line]

    assert len(told) == 1
    assert "line 1" in told[0]
    assert "write `\\%`" in told[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["/does/not/exist"],
        ["/etc/cron.d/anything"],
        ["{crontab}", "--timezone", "Mars"],
        ["{crontab}", "--check", "--write", "x"],
        ["{crontab}", "--write", "/does/not/exist/jobs.toml"],
        ["{latin}"],
    ],
)
def test_what_cannot_be_read_or_written_is_usage(
    schedctl: Schedctl, crontab: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """Exit 2 and one line that says what."""
    crontab.write_text("30 2 * * * ok\n")
    (tmp_path / "latin").write_bytes(b"30 2 * * * caf\xe9\n")
    places = {"crontab": str(crontab), "latin": str(tmp_path / "latin")}

    called = schedctl("import", "crontab", *(argument.format(**places) for argument in arguments))

    assert called.code == 2
    assert "schedctl: " in called.err.splitlines()[-1]


def test_stdin_can_be_imported(environ: dict[str, str]) -> None:
    """`crontab -l | schedctl import crontab -`."""
    called = call("import", "crontab", "-", "-n", "0", env=environ, stdin="30 2 * * * /opt/backup\n")

    assert called.code == 0
    assert "backup line 1" in called.out


def test_a_changed_schedule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the job file would fire at other times than the crontab, nothing is given out."""
    entries = parse_crontab("30 2 * * * /opt/backup\n", system=False)
    monkeypatch.setattr(
        "scheduler.cli.takeover.job_file",
        lambda jobs, heading: '[jobs.backup]\ncron = "30 3 * * *"\nshell = "/opt/backup"\n',
    )

    with pytest.raises(Conflict, match="line 1: job backup would not fire"):
        take_over(
            entries,
            heading="",
            name="x",
            owner=None,
            timezone=None,
            machine_zone=Settings().timezone,
            since=0,
            count=20,
        )
