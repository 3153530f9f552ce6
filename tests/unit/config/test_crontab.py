"""Crontab files: what they say, and what becomes of it."""

import json
import re
from pathlib import Path

import pytest

from scheduler.config.crontab import (
    CrontabEntry,
    ErrorEntry,
    ImportedJobs,
    JobEntry,
    parse_crontab,
    to_job_tables,
)

CASES = Path(__file__).parents[2] / "cases"
ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _rows() -> list[dict[str, object]]:
    text = (CASES / "crontab-public.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _read(text: str, *, system: bool = False) -> list[CrontabEntry]:
    return parse_crontab(text, system=system)


def _only(text: str, *, system: bool = False) -> CrontabEntry:
    (entry,) = _read(text, system=system)
    return entry


def _import(text: str, *, system: bool = False, **options: object) -> ImportedJobs:
    homes = {"ann": "/home/ann", "root": "/root"}
    return to_job_tables(
        _read(text, system=system),
        homes=lambda user: None if user is None else homes.get(user),
        **options,  # type: ignore[arg-type]  # each test names what it needs
    )


def _told(imported: ImportedJobs) -> str:
    return "\n".join(str(note) for note in imported.notes)


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["id"])
def test_corpus_text_gives_the_same_entries(row: dict[str, object]) -> None:
    """Each text of the corpus gives the same settings, jobs and errors, in the same shape."""
    entries = _read(str(row["text"]), system=row["form"] == "system")

    assert [entry.to_json() for entry in entries] == row["expect"]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("61 * * * * x\n", "bad-minute", "minute: 61 is out of range: write 0-59"),
        ("0 0 * * fri-mon x\n", "bad-day-of-week", "write 5-7,1"),
        ("0 0 30 2 * x\n", "never-fires", "never fire"),
        ("0 1 * * * x", "missing-newline", "line feed"),
        ("0 1 * * * x\r\n", "crlf", "LF alone"),
        ("0 1 * * * a\0b\n", "bad-character", "NUL"),
        ("0 1 * * *  %in\n", "missing-command", "command is missing"),
        ("CRON_TZ=Berlin\n", "bad-timezone", "did you mean Europe/Berlin?"),
        ("CRON_TZ=\n", "bad-timezone", "for example Europe/Berlin"),
        ('"A=1\n', "bad-minute", "minute"),
        ("A='x' y\n", "bad-env-quoting", "after its closing quote"),
        ("A='x\n", "bad-env-quoting", "no closing quote"),
        ("* * * * * * x\n", "bad-command", "no field for seconds"),
        ("@HOURLY x\n", "bad-time-specifier", "@reboot"),
        ("0 0\x0b* * * x\n", "bad-hour", "hour"),
    ],
)
def test_error_names_the_line_and_what_to_write(text: str, code: str, told: str) -> None:
    """An error entry has a word for programs and a sentence for people."""
    entry = _only("\n" + text)

    assert isinstance(entry, ErrorEntry)
    assert (entry.line, entry.code) == (2, code)
    assert told in entry.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0 1 * * * root -n /opt/x\n", "unsupported-option"),
        ("0 1 * * * /opt/x y\n", "bad-user"),
        ("0 1 * * *\n", "missing-user"),
        ("@daily root  \n", "missing-command"),
    ],
)
def test_system_form_needs_a_user_before_the_command(text: str, code: str) -> None:
    """A system crontab has a user column, and its rules for the command hold after it."""
    entry = _only(text, system=True)

    assert isinstance(entry, ErrorEntry)
    assert entry.code == code


@pytest.mark.parametrize(
    ("rest", "command", "stdin"),
    [
        ("a%b", "a", "b\n"),
        (r"a \% b", "a % b", None),
        (r"a\\%b", "a\\\\", "b\n"),
        (r"a\\\%b", r"a\\%b", None),
        (r"a\b%c\%d\e", r"a\b", "c%d\\e\n"),
        ("a%", "a", ""),
        ("a%%", "a", "\n"),
        ("a\\", "a\\", None),
    ],
)
def test_first_bare_percent_begins_the_standard_input(rest: str, command: str, stdin: str | None) -> None:
    r"""A bare `%` ends the command and is a line end after it; only `\%` loses its backslash."""
    entry = _only(f"0 1 * * * {rest}\n")

    assert isinstance(entry, JobEntry)
    assert (entry.command, entry.stdin) == (command, stdin)


def test_error_keeps_the_settings_before_it() -> None:
    """A bad zone leaves the zone above it in force, and the lines below are still read."""
    entries = _read("CRON_TZ=UTC\nCRON_TZ=Nowhere\n0 1 * * * x\n")

    assert [entry.to_json()["type"] for entry in entries] == ["env", "error", "job"]
    assert isinstance(entries[2], JobEntry)
    assert entries[2].timezone == "UTC"


def test_imported_job_behaves_as_under_cron() -> None:
    """The shell is /bin/sh, the directory is HOME, missed times stay missed."""
    imported = _import("TZ=UTC\n30 4 * * 1-5 /opt/backup.sh -a%in\n", owner="ann", timezone="Europe/Berlin")

    assert imported.jobs == [
        (
            "backup",
            {
                "description": "crontab line 2",
                "cron": "30 4 * * 1-5",
                "catch_up": "skip",
                "timezone": "Europe/Berlin",
                "shell": "/opt/backup.sh -a",
                "stdin": "in\n",
                "env": {"SHELL": "/bin/sh", "TZ": "UTC"},
            },
        )
    ]


def test_system_crontab_names_user_zone_and_shell() -> None:
    """User, CRON_TZ, SHELL and HOME of a system crontab reach the job table."""
    text = "SHELL=/bin/bash\nHOME=/srv\nCRON_TZ=Asia/Tokyo\n@daily root run it\n"

    ((job_id, table),) = _import(text, system=True).jobs

    assert job_id == "run"
    assert table["command"] == ["/bin/bash", "-c", "run it"]
    assert (table["user"], table["timezone"], table["cwd"]) == ("root", "Asia/Tokyo", "/srv")
    assert table["env"] == {"SHELL": "/bin/bash", "HOME": "/srv"}


@pytest.mark.parametrize(("home", "cwd"), [("", None), ("HOME=/home/ann\n", None), ("HOME=/srv\n", "/srv")])
def test_a_cwd_is_written_only_where_it_is_not_the_home(home: str, cwd: str | None) -> None:
    """A job starts in the home of its user anyway; another one's home may be closed to the daemon."""
    ((_, table),) = _import(f"{home}@daily x\n", owner="ann").jobs

    assert table.get("cwd") == cwd


def test_a_home_that_is_not_there_becomes_the_root() -> None:
    """As of nobody: the job would not start there, and a note says so."""
    imported = to_job_tables(
        parse_crontab("@daily nobody x\n", system=True), homes=lambda user: f"/nowhere/{user}"
    )

    assert imported.jobs[0][1]["cwd"] == "/"
    assert "line 1: job x: /nowhere/nobody, the home of nobody, is not there" in _told(imported)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("/usr/bin/flock -n /tmp/l x", "overlap"),
        ("timeout 1h x", "timeout"),
        ("sleep $((RANDOM % 60)); x", "jitter"),
        ("(flock -n 9 && x) 9>/tmp/l", "overlap"),
    ],
)
def test_what_a_key_could_do_is_left_in_the_command_and_told(command: str, key: str) -> None:
    """flock, timeout and a random sleep stay as they stand, with a note for their line."""
    command = command.replace("%", r"\%")
    told = [note for note in _import(f"@daily {command}\n").notes if note.line == 1]

    assert any(f"`{key}`" in note.message for note in told)


def test_nothing_is_told_of_words_that_only_look_like_it() -> None:
    """A file named timeout.log is no timeout."""
    notes = _import("@daily x --log timeout.log sleepy\n", owner="ann").notes

    assert [note for note in notes if note.line] == []


def test_what_was_missed_stays_missed_and_is_told() -> None:
    """`catch_up = "skip"` stands in each job, so the notes say what it is."""
    assert 'catch_up = "skip"' in _told(_import("@daily x\n"))
    assert "catch_up" not in _told(_import("@reboot x\n"))


def test_what_cannot_be_taken_over_is_told() -> None:
    """Mail, @reboot, errors and impossible delays are notes with their lines, never silence."""
    imported = _import(
        "MAILTO=ann\nMAILFROM=x\nLOGNAME=y\nRANDOM_DELAY=10\n@reboot a\n*/5 * * * * b\n0 99 * * * c\n"
    )

    told = _told(imported)
    for part in (
        "line 1: MAILTO is not taken over: no mail is sent; on_failure",
        "line 2: MAILFROM",
        "line 3: LOGNAME",
        "line 5: job a: @reboot",
        "line 6: job b: RANDOM_DELAY=10",
        "line 7: not taken over: hour: 99",
        "job a: no home directory",
        "overlap",
    ):
        assert part in told
    assert [job_id for job_id, _ in imported.jobs] == ["a", "b"]
    assert imported.jobs[0][1]["manual"] is True
    assert "jitter" not in imported.jobs[1][1]


def test_random_delay_becomes_a_jitter_where_it_fits() -> None:
    """Ten minutes of random delay on a daily job are a jitter; nonsense is told."""
    assert _import("RANDOM_DELAY=10\n0 3 * * * a\n").jobs[0][1]["jitter"] == "10m"
    assert "RANDOM_DELAY=soon is not" in _told(_import("RANDOM_DELAY=soon\n0 3 * * * a\n"))


def test_empty_mailto_and_empty_file_tell_nothing() -> None:
    """Where nothing is lost, nothing is told."""
    assert _import('MAILTO=""\n# nothing\n').notes == []


@pytest.mark.parametrize(
    ("command", "job_id"),
    [
        ("/opt/backup.sh -a", "backup"),
        ("[ -x /usr/sbin/dma ] && /usr/sbin/dma -q", "dma"),
        ("cd / && run-parts --report /etc/cron.daily", "run-parts"),
        ("PGPASSWORD=geheim pg_dump db", "pg-dump"),
        ("env TOKEN=geheim python3 /srv/Tool_1.py", "tool-1"),
        ("sleep 60 && x", "x"),
        ("../../x", "x"),
        ("-rf", "job"),
        ("ü", "job"),
        ("a" * 300, "a" * 64),
    ],
)
def test_job_id_comes_from_the_command_and_is_safe(command: str, job_id: str) -> None:
    """An id is made of the telling word of a command, never of a path or an assignment."""
    ((found, _),) = _import(f"0 1 * * * {command}\n").jobs

    assert found == job_id
    assert ID.fullmatch(found)


def test_job_ids_are_unique_also_beside_taken_ones() -> None:
    """The same command twice gives two ids, unlike those already in use."""
    imported = _import("0 1 * * * x\n" * 3 + f"0 1 * * * {'a' * 70}\n" * 2, taken={"x", "x-3"})

    assert [job_id for job_id, _ in imported.jobs] == ["x-2", "x-4", "x-5", "a" * 64, "a" * 62 + "-2"]
