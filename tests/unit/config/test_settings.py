from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import HOUR, MINUTE, SECOND
from scheduler.config.paths import ConfigFile
from scheduler.config.settings import (
    LogFormat,
    LogLevel,
    Settings,
    SettingsTable,
    load_settings,
    local_timezone,
)
from scheduler.errors import ConfigError, Fault

EVERYTHING = """
timezone = "Europe/Berlin"
max_running = 8
start_rate = 2.5
drain_timeout = "1m"
lease = "2m"
heartbeat = "30s"
output_limit = "1MiB"
default_timeout = "1h"
log = { format = "json", level = "debug" }
python_path = [".", "/opt/handlers"]
listen = { socket = "run/control.sock" }
jobs = ["jobs.d", "/srv/jobs"]
[groups.exports]
max_running = 2
[groups."a b"]
[calendars]
holidays = ["2026-12-24..2026-12-26", "cron: * * * * sun"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.toml"


def load(file: Path, text: str, **environ: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    return load_settings(ConfigFile(path=file, named=True), {"TZ": "UTC", **environ})


def refused(file: Path, text: str, **environ: str) -> tuple[Fault, ...]:
    with pytest.raises(ConfigError) as error:
        load(file, text, **environ)
    assert error.value.exit_code == 1
    assert all(str(fault) in error.value.message for fault in error.value.faults)
    return error.value.faults


def test_every_key_is_read(file: Path) -> None:
    """The file with every key set becomes the settings that it says; relative paths start from its folder."""
    assert load(file, EVERYTHING) == Settings(
        timezone="Europe/Berlin",
        max_running=8,
        start_rate=2.5,
        drain_timeout=MINUTE,
        lease=2 * MINUTE,
        heartbeat=30 * SECOND,
        output_limit=2**20,
        default_timeout=HOUR,
        log_format=LogFormat.JSON,
        log_level=LogLevel.DEBUG,
        groups={"exports": 2, "a b": 1},
        calendars={"holidays": ("2026-12-24..2026-12-26", "cron: * * * * sun")},
        python_path=(file.parent, Path("/opt/handlers")),
        socket=file.parent / "run/control.sock",
        jobs=(file.parent / "jobs.d", Path("/srv/jobs")),
    )


def test_an_empty_file_means_the_defaults(file: Path) -> None:
    """Every key has a default, and the job folder lies beside the file."""
    assert load(file, "") == Settings(jobs=(file.parent / "jobs.d",))


def test_a_file_that_nobody_named_may_be_missing(file: Path) -> None:
    """Without a configuration the daemon runs on defaults; a named file must be there."""
    settings = load_settings(ConfigFile(path=file, named=False), {"TZ": "UTC"})

    assert settings == Settings(jobs=(file.parent / "jobs.d",))
    with pytest.raises(ConfigError, match="does not exist: make it"):
        load_settings(ConfigFile(path=file, named=True), {})


def test_a_dangling_link_is_not_a_missing_file(file: Path) -> None:
    """A default file that is a broken link is a fault: somebody meant something."""
    file.symlink_to("nowhere")

    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(ConfigFile(path=file, named=False), {})


def test_flags_beat_environment_beat_file_beat_defaults(file: Path) -> None:
    """Precedence, each step seen on its own."""
    file.write_text('max_running = 1\nlisten = { socket = "/file.sock" }\njobs = ["/file"]\n')
    config = ConfigFile(path=file, named=True)
    environ = {"SCHEDULER_MAX_RUNNING": "2", "SCHEDULER_SOCKET": "/env.sock", "SCHEDULER_JOBS": "/env1:/env2"}

    by_file = load_settings(config, {})
    by_environ = load_settings(config, environ)
    by_flag = load_settings(config, environ, socket=Path("/flag.sock"), jobs=[Path("/flag")])

    assert [(each.max_running, str(each.socket), each.jobs) for each in (by_file, by_environ, by_flag)] == [
        (1, "/file.sock", (Path("/file"),)),
        (2, "/env.sock", (Path("/env1"), Path("/env2"))),
        (2, "/flag.sock", (Path("/flag"),)),
    ]


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("TIMEZONE", "Asia/Tokyo", "timezone", "Asia/Tokyo"),
        ("MAX_RUNNING", "5", "max_running", 5),
        ("START_RATE", "0.5", "start_rate", 0.5),
        ("DRAIN_TIMEOUT", "0", "drain_timeout", 0),
        ("LEASE", "5m", "lease", 5 * MINUTE),
        ("HEARTBEAT", "1.5", "heartbeat", 1_500_000),
        ("OUTPUT_LIMIT", "2048", "output_limit", 2048),
        ("DEFAULT_TIMEOUT", "90s", "default_timeout", 90 * SECOND),
        ("LOG_FORMAT", "console", "log_format", LogFormat.CONSOLE),
        ("LOG_LEVEL", "error", "log_level", LogLevel.ERROR),
        ("PYTHON_PATH", "/a:/b", "python_path", (Path("/a"), Path("/b"))),
    ],
)
def test_each_variable_is_read(file: Path, name: str, value: str, attribute: str, expected: object) -> None:
    """SCHEDULER_<KEY> sets the key; an empty variable sets nothing."""
    assert getattr(load(file, "", **{f"SCHEDULER_{name}": value}), attribute) == expected
    assert getattr(load(file, "", **{f"SCHEDULER_{name}": ""}), attribute) == getattr(Settings(), attribute)


def test_a_variable_goes_beside_what_the_file_says_of_its_table(file: Path) -> None:
    """Setting log.level by environment leaves log.format as the file has it."""
    settings = load(file, 'log = { format = "json" }', SCHEDULER_LOG_LEVEL="warning")

    assert (settings.log_format, settings.log_level) == (LogFormat.JSON, LogLevel.WARNING)


def test_other_variables_of_ours_are_not_settings(file: Path) -> None:
    """What a run is told (SCHEDULER_JOB) may be in the environment of a daemon that a run starts."""
    assert load(file, "", SCHEDULER_JOB="x", SCHEDULER_RUN_ID="y").max_running == 32


def test_all_faults_are_told_at_once_with_their_places(file: Path) -> None:
    """File faults have their line, those of the environment the variable's name."""
    found = refused(
        file,
        'max_running = "8"\nmax_runing = 8\nretention = { age = "month" }\n[log]\nlevel = "verbose"\n'
        '[groups.a]\nmax_running = 0\n[calendars]\nbad = ["2026-12-24", "christmas"]\n',
        SCHEDULER_TIMEZONE="Europe/Berln",
        SCHEDULER_LEASE="soon",
    )

    assert {(fault.key, fault.line, fault.file is None) for fault in found} == {
        ("max_running", 1, False),
        ("max_runing", 2, False),
        ("retention.age", 3, False),
        ("log.level", 5, False),
        ("groups.a.max_running", 7, False),
        ("calendars.bad[1]", 9, False),
        ("SCHEDULER_TIMEZONE", None, True),
        ("SCHEDULER_LEASE", None, True),
    }


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("max_runing = 8", "max_runing", "did you mean max_running?"),
        ("max_running = 0", "max_running", "at least 1"),
        ("max_running = true", "max_running", "a whole number, not true"),
        ("start_rate = 0", "start_rate", "more than 0"),
        ('start_rate = "20"', "start_rate", "a number, not text"),
        ('lease = "0s"', "lease", "longer than 0"),
        ('heartbeat = "30s"', "heartbeat", "shorter than half of lease"),
        ('heartbeat = "1ms"', "heartbeat", "at least 50ms"),
        ('output_limit = "10 apples"', "output_limit", "10MiB"),
        ("output_limit = 10", "output_limit", "between 1KiB and 1TiB"),
        ("output_limit = true", "output_limit", "10MiB"),
        ('timezone = "CEST5"', "timezone", "unknown time zone"),
        ("log = 5", "log", "a table, not a whole number"),
        ('log = { format = "xml" }', "log.format", '"auto" or "json" or "console"'),
        ("groups = []", "groups", "a table, not a list"),
        ("[groups.a]\nmax_runing = 1", "groups.a.max_runing", "did you mean max_running?"),
        ('calendars = { a = "2026-12-24" }', "calendars.a", "a list, not text"),
        ('calendars = { a = ["calendar: b"] }', "calendars.a[0]", "unknown calendar"),
        ("jobs = [5]", "jobs[0]", "text in quotes"),
        ('jobs = ["a\\u0000"]', "jobs[0]", "control character"),
        ("listen = { port = 80 }", "listen.port", "socket"),
        ("retention = { runs_per_job = 0 }", "retention.runs_per_job", "at least 1"),
        ("retention = { days = 3 }", "retention.days", "age"),
    ],
)  # fmt: skip
def test_a_faulty_value_is_named_with_what_to_write(file: Path, text: str, key: str, words: str) -> None:
    """One wrong key gives one fault with its line, which says what to write."""
    (fault,) = refused(file, text)

    assert fault.key == key
    assert fault.line in (1, 2)
    assert words in fault.message


def test_a_table_given_as_a_number_is_refused_beside_a_variable(file: Path) -> None:
    """A variable cannot be laid over something that is no table; the file's fault is told."""
    (fault,) = refused(file, "log = 5", SCHEDULER_LOG_LEVEL="info")

    assert fault.key == "log"


@pytest.mark.parametrize("content", [b"max_running = \n", b"\xff\xfe", b"[log\n"])
def test_a_file_that_is_no_toml_is_refused(file: Path, content: bytes) -> None:
    """Syntax errors and other encodings are faults with a line."""
    file.write_bytes(content)

    with pytest.raises(ConfigError) as error:
        load_settings(ConfigFile(path=file, named=True), {})

    assert error.value.faults[0].line == 1


@given(st.dictionaries(st.sampled_from(sorted(SettingsTable.model_fields)), st.text(max_size=8)))
def test_any_environment_is_taken_or_refused(environ: dict[str, str]) -> None:
    """No value of a variable makes it raise anything but ConfigError."""
    variables = {f"SCHEDULER_{key.upper()}": value for key, value in environ.items()}
    try:
        settings = load_settings(ConfigFile(path=Path("/nonexistent/scheduler.toml"), named=False), variables)
    except ConfigError as error:
        assert all(str(fault).isprintable() for fault in error.faults)  # noqa: PT017 -- not what it must raise
    else:
        assert settings.max_running >= 1


def test_the_machine_says_the_default_time_zone(tmp_path: Path) -> None:
    """TZ, else the link that /etc/localtime is, else UTC."""
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    plain = tmp_path / "copied"
    plain.write_bytes(b"TZif")

    assert local_timezone({"TZ": ":America/New_York"}, link) == "America/New_York"
    assert local_timezone({"TZ": "CET-1CEST"}, link) == "Europe/Berlin"
    assert local_timezone({}, link) == "Europe/Berlin"
    assert local_timezone({}, plain) == "UTC"
