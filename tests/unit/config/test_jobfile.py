from datetime import UTC, datetime

import pytest

from scheduler.clock import HOUR, MINUTE, SECOND, to_micros
from scheduler.config.jobfile import parse_definition, parse_jobs
from scheduler.config.settings import Settings
from scheduler.errors import Fault, Invalid
from scheduler.executors.unit_manager import Scope, manager_scope
from scheduler.model.jobs import (
    Backoff,
    CatchUp,
    CommandAction,
    JobDefinition,
    OnCrash,
    Overlap,
    PythonAction,
    RetryPolicy,
    ShellAction,
)
from scheduler.model.triggers import At, Cron, Delay, Every, Manual

SETTINGS = Settings(
    timezone="Europe/Berlin",
    groups={"exports": 2},
    calendars={"holidays": ("2026-12-24..2026-12-26", "2027-01-01")},
)

EVERYTHING = """
[jobs.nightly-export]
description = "Export the day's orders"
cron = "30 2 * * *"
timezone = "America/New_York"
command = ["/usr/local/bin/export", "--all"]
args = { region = "eu" }
env = { LANG = "C.UTF-8" }
env_file = "/etc/export.env"
cwd = "/srv/export"
stdin = "text"
timeout = "2h"
stall_timeout = "30m"
kill_grace = "20s"
success_exit_codes = [0, 3]
complete_exit_codes = [42]
overlap = "allow"
max_running = 2
queue_limit = 2
labels = ["billing"]
group = "exports"
priority = -5
catch_up = "all"
catch_up_window = "12h"
late_after = "90s"
catch_up_limit = 5
max_crashes = 2
control = false
process = false
jitter = "10m"
start_at = 2026-01-01T00:00:00
end_at = 2028-01-01T00:00:00Z
max_runs = 100
except = ["calendar: holidays", "cron: * * * * sun"]
on_crash = "retry"
max_failures = 4
enabled = false
isolate = "none"
keep_runs = 50
[jobs.nightly-export.retry]
attempts = 3
delay = "5s"
backoff = "constant"
max_delay = "2h"
exit_codes = [75]
"""


WINDOW = {"start_at": "2027-01-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}


def local(text: str) -> datetime:
    """A time without an offset."""
    return datetime.fromisoformat(text)


def definition(**keys: object) -> JobDefinition:
    return parse_definition("job", {"shell": "true", "manual": True} | keys, SETTINGS)


def faults(**keys: object) -> list[str]:
    """Key and message of every fault of a job that is sound but for these keys."""
    table = {"shell": "true", "manual": True} | keys
    _, found = parse_jobs(
        {"jobs": {"job": {key: value for key, value in table.items() if value != "-"}}}, None, SETTINGS
    )
    return [f"{fault.key}: {fault.message}" for fault in found]


def only_fault(**keys: object) -> str:
    (fault,) = faults(**keys)
    return fault


def parsed(text: str) -> list[Fault]:
    _, found = parse_jobs(text, "x.toml", SETTINGS)
    return found


# --- what is accepted ---


def test_every_key_of_the_example_reaches_the_definition() -> None:
    """The job file of the manual, every key set, becomes the definition that it says."""
    (job,), found = parse_jobs(EVERYTHING, "x.toml", SETTINGS)

    assert found == []
    assert job.id == "nightly-export"
    assert job.description == "Export the day's orders"
    assert job.schedule.trigger == Cron("30 2 * * *", "America/New_York")
    assert job.action == CommandAction(argv=("/usr/local/bin/export", "--all"))
    assert job.schedule.start_at == to_micros(datetime(2026, 1, 1, 5, tzinfo=UTC))
    assert job.schedule.end_at == to_micros(datetime(2028, 1, 1, tzinfo=UTC))
    assert job.schedule.exclusions.entries == ("2026-12-24..2026-12-26", "2027-01-01", "cron: * * * * sun")
    assert job.schedule.exclusions.timezone == "America/New_York"
    assert job.schedule.jitter == 10 * MINUTE
    assert job.schedule.job_id == "nightly-export"
    assert (job.args, job.env) == ({"region": "eu"}, {"LANG": "C.UTF-8"})
    assert (job.env_file, job.cwd, job.stdin) == ("/etc/export.env", "/srv/export", "text")
    assert (job.timeout, job.stall_timeout, job.kill_grace) == (2 * HOUR, 30 * MINUTE, 20 * SECOND)
    assert (job.success_exit_codes, job.complete_exit_codes) == ((0, 3), (42,))
    assert (job.overlap, job.max_running, job.queue_limit) == (Overlap.ALLOW, 2, 2)
    assert (job.labels, job.group, job.priority) == (("billing",), "exports", -5)
    assert (job.catch_up, job.catch_up_limit) == (CatchUp.ALL, 5)
    assert (job.catch_up_window, job.late_after) == (12 * HOUR, 90 * SECOND)
    assert (job.max_runs, job.max_crashes, job.max_failures) == (100, 2, 4)
    assert (job.on_crash, job.enabled, job.keep_runs) == (OnCrash.RETRY, False, 50)
    assert job.retry == RetryPolicy(
        attempts=3, delay=5 * SECOND, backoff=Backoff.CONSTANT, max_delay=2 * HOUR, exit_codes=(75,)
    )


@pytest.mark.parametrize(
    ("keys", "trigger"),
    [
        ({"cron": "  0 \t 5 * * 1-5 "}, Cron("0 5 * * 1-5", "Europe/Berlin")),
        ({"cron": "@daily"}, Cron("@daily", "Europe/Berlin")),
        ({"every": "15m"}, Every(15 * MINUTE)),
        ({"every": 2.5}, Every(2_500_000)),
        (
            {"every": "1h", "start_at": "2026-01-01T00:07:00Z"},
            Every(HOUR, to_micros(datetime(2026, 1, 1, 0, 7, tzinfo=UTC))),
        ),
        ({"delay": 600}, Delay(10 * MINUTE)),
        ({"at": "2027-01-01T09:00:00+01:00"}, At(to_micros(datetime(2027, 1, 1, 8, tzinfo=UTC)))),
        ({"at": local("2027-01-01T09:00:00")}, At(to_micros(datetime(2027, 1, 1, 8, tzinfo=UTC)))),
        ({"manual": True}, Manual()),
    ],
)
def test_each_trigger_is_read(keys: dict[str, object], trigger: object) -> None:
    """Each kind of trigger is read; a time without an offset is local to the job's zone."""
    job = parse_definition("job", {"shell": "true", **keys}, SETTINGS)

    assert job.schedule.trigger == trigger


def test_each_action_is_read() -> None:
    """argv, shell line and Python handler each become their action."""
    assert definition(shell="a | b").action == ShellAction(line="a | b")
    python = {"manual": True, "python": "pkg.mod:run", "process": True, "cwd": "/srv"}
    assert parse_definition("job", python, SETTINGS).action == PythonAction(
        handler="pkg.mod:run", process=True
    )


def test_what_the_daemon_lends_to_a_job_is_part_of_its_definition() -> None:
    """Another time zone, default timeout or calendar of the daemon is another definition."""
    table = {"cron": "@daily", "shell": "true", "except": ["calendar: holidays"]}
    sources = {
        parse_definition("job", table, settings).source
        for settings in (
            SETTINGS,
            Settings(timezone="UTC", calendars=SETTINGS.calendars),
            Settings(timezone="Europe/Berlin", calendars=SETTINGS.calendars, default_timeout=HOUR),
            Settings(timezone="Europe/Berlin", calendars={"holidays": ("2026-12-24",)}),
        )
    }

    assert len(sources) == 4


def test_a_timeout_of_its_own_beats_the_default() -> None:
    """default_timeout is for jobs that have none."""
    settings = Settings(default_timeout=HOUR)

    assert parse_definition("job", {"manual": True, "shell": "true"}, settings).timeout == HOUR
    table = {"manual": True, "shell": "true", "timeout": "5s"}
    assert parse_definition("job", table, settings).timeout == 5 * SECOND


def test_expired_is_a_state_and_no_error() -> None:
    """A job whose end or only time is past is sound (B58)."""
    assert faults(manual="-", every="1h", end_at="2020-01-01T00:00:00Z") == []
    assert faults(manual="-", at="2020-01-01T00:00:00Z") == []


def test_the_order_of_sets_makes_no_other_definition() -> None:
    """Labels, exit codes and exclusions are sets: order and repetition mean nothing."""
    one = definition(manual=False, every=60, labels=["b", "a", "b"], success_exit_codes=[3, 0])
    two = definition(manual=False, every=60, labels=["a", "b"], success_exit_codes=[0, 3, 3])

    assert one == two


# --- what is refused: each with its key, and what to write instead ---


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"timeout": "0s"}, "timeout", "longer than 0"),
        ({"timeout": 0}, "timeout", "longer than 0"),
        ({"kill_grace": -1}, "kill_grace", "negative"),
        ({"timeout": "2 hours"}, "timeout", "2h"),
        ({"timeout": True}, "timeout", "must be a duration"),
        ({"timeout": 10**5000}, "timeout", "hundred years"),
        ({"timeout": float("nan")}, "timeout", "bad duration"),
        ({"timeout": None}, "timeout", "leave the key out"),
        ({"description": 5}, "description", "text in quotes, not a whole number"),
        ({"enabled": "yes"}, "enabled", "true or false, not text"),
        ({"priority": "high"}, "priority", "a whole number, not text"),
        ({"priority": 1.5}, "priority", "a whole number"),
        ({"priority": True}, "priority", "a whole number"),
        ({"priority": 10**5000}, "priority", "at most"),
        ({"labels": "a"}, "labels", "a list, not text"),
        ({"labels": ["a", 1]}, "labels[1]", "text in quotes"),
        ({"labels": [""]}, "labels[0]", "empty"),
        ({"env": []}, "env", "a table, not a list"),
        ({"env": {"A": 1}}, "env.A", "text in quotes"),
        ({"env": {"A=B": "x"}}, "env.A=B", "no name of a variable"),
        ({"env": {"": "x"}}, "env.", "no name of a variable"),
        ({"env": {"A": "x\x1b"}}, "env.A", "control character"),
        ({"env": {"SCHEDULER_JOB": "x"}}, "env.SCHEDULER_JOB", "kept for"),
        ({"args": ["x"]}, "args", "must be a table"),
        ({"args": {"a": local("2026-01-01")}}, "args", "write it in quotes"),
        ({"args": {"a": [float("inf")]}}, "args", "inf or nan"),
        ({"args": {"a": {"b": 10**5000}}}, "args", "64 bits"),
        ({"args": {"a": "\ud800"}}, "args", "surrogate"),
        ({"args": {"a": "x" * 70_000}}, "args", "65536"),
        ({"cwd": "srv"}, "cwd", "absolute"),
        ({"env_file": "~/x"}, "env_file", "absolute"),
        ({"shell": " \n"}, "shell", "empty"),
        ({"shell": "a\0b"}, "shell", "control character"),
        ({"stdin": "a\0b"}, "stdin", "control character"),
        ({"success_exit_codes": [256]}, "success_exit_codes[0]", "at most 255"),
        ({"success_exit_codes": []}, "success_exit_codes", "no run could ever succeed"),
        ({"overlap": "skp"}, "overlap", 'did you mean "skip"'),
        ({"overlap": ["skip"]}, "overlap", "not a list"),
        ({"overlap": "allow"}, "overlap", "max_running = 2"),
        ({"max_running": 2}, "max_running", 'overlap = "allow"'),
        ({"max_running": 0}, "max_running", "at least 1"),
        ({"catch_up": "newest"}, "catch_up", '"latest" or "skip" or "all"'),
        ({"timezone": "Europe/Berln"}, "timezone", "Europe/Berlin"),
        ({"timezone": "../etc/passwd"}, "timezone", "unknown time zone"),
        ({"timezone": "x" * 500}, "timezone", "no name of a time zone"),
        ({"group": "export"}, "group", 'did you mean "exports"'),
        ({"group": "zzz"}, "group", "add [groups.zzz]"),
        ({"process": True}, "process", "belongs to python"),
        ({"on_crash": "retry", "max_crashes": 0}, "max_crashes", "at least 1"),
        ({"retry": {"attempts": -1}}, "retry.attempts", "at least 0"),
        ({"retry": {"atempts": 1}}, "retry.atempts", "did you mean attempts?"),
        ({"retry": {"delay": "2h", "max_delay": "1h"}}, "retry.max_delay", "shorter than retry.delay"),
        ({"retry": {"backoff": "linear"}}, "retry.backoff", '"exponential" or "constant"'),
        ({"retry": 3}, "retry", "a table, not a whole number"),
        ({"tiemout": "2h"}, "tiemout", "did you mean timeout?"),
        ({"shell": "-", "command": "true"}, "command", 'not text: write ["program", "argument"], or shell ='),
        ({"MAILTO": "root"}, "MAILTO", "did you mean on_failure?"),
        ({"retries": 3}, "retries", "did you mean retry?"),
        ({"Timeout": "2h"}, "Timeout", "did you mean timeout?"),
        ({"qqqq": 1}, "qqqq", "the keys here are"),
    ],
)  # fmt: skip
def test_a_faulty_value_is_named_with_what_to_write(keys: dict[str, object], key: str, words: str) -> None:
    """One wrong key gives one fault, which names it and says what to write."""
    fault = only_fault(**keys)

    assert fault.startswith(f"{key}: ")
    assert words in fault


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"cron": "0 0 30 2 *"}, "cron", "no calendar has such a date"),
        ({"cron": "*/0 * * * *"}, "cron", "minute: a step of 0"),
        ({"cron": "0 24 * * *"}, "cron", "hour: 24 is out of range"),
        ({"cron": "* * * *"}, "cron", "fields: 4 found"),
        ({"cron": "* * * * *\n"}, "cron", "control character"),
        ({"cron": 5}, "cron", "text in quotes"),
        ({"every": "0s"}, "every", "longer than 0"),
        ({"every": "500us"}, "every", "1ms or more"),
        ({"every": "5s", "jitter": "5s"}, "jitter", "not smaller than the time between two fires"),
        ({"cron": "*/5 * * * *", "jitter": "5m"}, "jitter", "not smaller"),
        ({"delay": "5s", "jitter": "6s"}, "jitter", "not smaller"),
        ({"every": "5s", **WINDOW}, "end_at", "before start_at"),
        ({"every": "5s", "except": ["2026-13-01"]}, "except[0]", "no such date"),
        ({"every": "5s", "except": ["2026-01-01", "calendar: x"]}, "except[1]", "calendars: holidays"),
        ({"every": "5s", "except": ["cron: * * * * *"]}, "except", "leave no fire time"),
        ({"at": "tomorrow"}, "at", "must be a date with a time"),
        ({"at": local("2027-01-01").date()}, "at", "not a date without a time"),
        ({"at": "2027-02-30T00:00:00Z"}, "at", "no time of the calendar"),
        ({"at": local("0001-01-01")}, "at", "write a year"),
        ({"at": datetime(9999, 12, 31, tzinfo=UTC)}, "at", "write a year"),
        ({"at": 1_800_000_000}, "at", "must be a date with a time"),
    ],
)  # fmt: skip
def test_a_faulty_time_is_named_with_what_to_write(keys: dict[str, object], key: str, words: str) -> None:
    """Times that cannot be read, never come or contradict each other are refused at load (B05)."""
    fault = only_fault(manual="-", **keys)

    assert fault.startswith(f"{key}: ")
    assert words in fault


def test_29_february_is_no_date_that_never_comes() -> None:
    """A date of leap years is accepted (B05)."""
    assert faults(manual="-", cron="0 0 29 2 *") == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"manual": "-"}, "says nowhere when to run"),
        ({"manual": False}, "says nowhere when to run"),
        ({"shell": "-"}, "says nowhere what to run"),
        ({"every": 5}, "every and manual exclude each other"),
        ({"command": ["true"]}, "command and shell exclude each other"),
        ({"command": ["true"], "python": "a:b"}, "command and shell and python exclude each other"),
    ],
)
def test_exactly_one_trigger_and_one_action(keys: dict[str, object], words: str) -> None:
    """None or several of either is refused."""
    assert words in only_fault(**keys)


@pytest.mark.parametrize("key", ["jitter", "start_at", "end_at", "except", "max_runs"])
def test_a_manual_job_has_nothing_for_a_window_to_act_on(key: str) -> None:
    """A key that could do nothing is refused, never ignored."""
    values = {"jitter": 5, "except": ["2026-01-01"], "max_runs": 1}

    assert only_fault(**{key: values.get(key, "2027-01-01T00:00:00Z")}).startswith(f"{key}: a manual job")


@pytest.mark.parametrize("key", ["cwd", "env", "env_file", "stdin"])
def test_an_on_loop_handler_has_no_process_to_set_up(key: str) -> None:
    """cwd, env, env_file and stdin are errors at load unless the handler has a process of its own."""
    value = {"A": "b"} if key == "env" else "/x"

    assert "process = true" in only_fault(shell="-", python="a.b:c", **{key: value})
    assert faults(shell="-", python="a.b:c", process=True, **{key: value}) == []


@pytest.mark.parametrize("handler", ["a.b", "a:", ":b", "a b:c", "a.b:c()", "a..b:c", "a:class", ""])
def test_a_handler_is_module_and_function(handler: str) -> None:
    """A handler that no import could name is refused at load."""
    assert "package.module:function" in only_fault(shell="-", python=handler)


def test_a_handler_has_no_exit_codes() -> None:
    """Exit codes belong to commands."""
    python = {"shell": "-", "python": "a:b"}

    assert "no exit code" in only_fault(**python, complete_exit_codes=[3])
    assert "no exit code" in only_fault(**python, retry={"attempts": 1, "exit_codes": [3]})


@pytest.mark.parametrize("argv", [[], [""], ["a", "b\0"], ["a", "\x1b[31m"], ["a\nb"], ["a", "\ud800"]])
def test_an_argv_names_a_program_and_has_no_control_characters(argv: list[str]) -> None:
    """An empty argv, NUL, escapes and line ends in it are refused."""
    assert only_fault(shell="-", command=argv).startswith("command")


@pytest.mark.parametrize(
    "job_id",
    [
        "a/b",
        "../../x",
        "-rf",
        "naïve",
        "nai\u0308ve",
        "a\nb",
        "a\x1b[0m",
        "x" * 65,
        "",
        "Backup",
        "a b",
        ".a",
        "\uff41",
    ],
)
def test_an_id_outside_the_rule_is_refused_with_the_rule(job_id: str) -> None:
    """Ids that could break a path, a terminal or a look-alike are refused, and the rule is stated (B45)."""
    _, (fault,) = parse_jobs({"jobs": {job_id: {"manual": True, "shell": "true"}}}, "x.toml", SETTINGS)

    assert "an id has 1 to 64 characters: a-z, 0-9" in fault.message
    assert str(fault).isprintable()


@pytest.mark.parametrize("job_id", ["a", "0", "a.b", "nightly-export", "a_b.c-d", "x" * 64])
def test_an_id_within_the_rule_is_taken(job_id: str) -> None:
    """Dots, dashes and underscores are fine after the first character."""
    assert parse_definition(job_id, {"manual": True, "shell": "true"}, SETTINGS).id == job_id


# --- units of their own ---


@pytest.mark.parametrize("scope", list(Scope))
def test_a_command_may_have_a_unit_where_there_is_a_manager(
    monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    """`isolate = "unit"` is taken for a command and a shell line, and is part of the definition."""
    monkeypatch.setattr("scheduler.config.jobrules.own_scope", lambda: scope)

    assert definition(isolate="unit").isolate == "unit"
    assert '"isolate":"unit"' in definition(isolate="unit").source


def test_a_unit_without_a_manager_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither root nor under a user's manager: the load says so, instead of running the job otherwise."""
    monkeypatch.setattr("scheduler.config.jobrules.own_scope", lambda: manager_scope(1000, {}))

    fault = only_fault(isolate="unit")

    assert fault.startswith("isolate: only a daemon that runs as root, or under a user's own service manager")
    assert 'write "none"' in fault


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"python": "a:b", "shell": "-", "process": True}, "a Python handler has no unit"),
        ({"batch": {"items": ["a"]}}, "a batch has no unit"),
    ],
)
def test_only_a_command_has_a_unit(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, object], words: str
) -> None:
    """Handlers talk to their daemon, and batches go on with the items that are left: both are refused."""
    monkeypatch.setattr("scheduler.config.jobrules.own_scope", lambda: Scope.SYSTEM)

    assert words in only_fault(isolate="unit", **keys)


# --- all faults at once, with their places ---


def test_all_faults_of_a_file_are_told_at_once_in_its_order() -> None:
    """Several faults in one job, faults in several jobs and at the top level come in one list, with lines."""
    found = parsed(
        """
retries = 1
[jobs.one]
cron = "0 24 * * *"
shell = "true"
tiemout = "2h"
overlap = "allow"
[jobs.Two]
manual = true
[jobs.three]
every = "5s"
jitter = "1m"
max_running = "4"
shell = "true"
"""
    )

    assert [(fault.line, fault.job, fault.key) for fault in found] == [
        (2, None, "retries"),
        (4, "one", "cron"),
        (6, "one", "tiemout"),
        (7, "one", "overlap"),
        (8, "Two", None),
        (8, "Two", None),
        (12, "three", "jitter"),
        (13, "three", "max_running"),
    ]
    assert {fault.file for fault in found} == {"x.toml"}
    assert str(found[1]).startswith("x.toml:4: job one: cron: bad cron expression")


def test_a_fault_hides_no_other_and_makes_none_up() -> None:
    """Where a key is faulty the rules that need it are silent, and all others speak."""
    told = faults(max_running="4", overlap="allow", group="zzz", process=True)

    assert [fault.partition(":")[0] for fault in told] == ["max_running", "process", "group"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[jobs.a]\nshell = \n", 2, "TOML syntax error"),
        ("[jobs.a]\nshell = 'x'\nshell = 'y'", 3, "TOML syntax error"),
        ("[jobs.a\n", 1, "TOML syntax error"),
        ("[jobs.a]\n\n[jobs.a]\n", 3, "TOML syntax error"),
        ("a = " + "[" * 3000, None, "too deep"),
        ("a = " + "9" * 5000, None, "more digits"),
    ],
)
def test_a_syntax_error_has_its_line(text: str, line: int | None, words: str) -> None:
    """A text that is no TOML gives one fault, with the line where there is one."""
    (fault,) = parsed(text)

    assert words in fault.message or "nested" in fault.message
    assert line is None or fault.line == line


def test_an_unquoted_dot_is_told_as_such() -> None:
    """[jobs.a.b] is told to be quoted, at its line, and nothing is said of a job `a` that nobody meant."""
    (fault,) = parsed('[jobs.web.backup.daily]\ncron = "@daily"\nshell = "true"\n')

    assert (fault.line, fault.job) == (1, "web")
    assert '[jobs."web.backup.daily"]' in fault.message


def test_a_job_at_the_top_level_is_told_where_it_belongs() -> None:
    """[backup] instead of [jobs.backup] is recognised, and so is [job.backup]."""
    assert "[jobs.backup]" in parsed('[backup]\nevery = 5\nshell = "x"')[0].message
    assert "did you mean jobs?" in parsed('[job.backup]\nevery = 5\nshell = "x"')[0].message


@pytest.mark.parametrize("top", [{}, {"jobs": {}}])
def test_a_file_without_jobs_is_sound(top: dict[str, object]) -> None:
    """An empty job file says: no jobs."""
    assert parse_jobs(top, None, SETTINGS) == ([], [])
    assert parse_jobs("# nothing\n", None, SETTINGS) == ([], [])


@pytest.mark.parametrize("jobs", [5, [], "x", {"a": 5}, {"a": [{}]}, {"a": None}])
def test_jobs_are_tables(jobs: object) -> None:
    """Something else where a table belongs is one fault."""
    _, (fault,) = parse_jobs({"jobs": jobs}, None, SETTINGS)

    assert "must be a" in fault.message or "must be tables" in fault.message


def test_no_value_that_may_be_secret_is_told() -> None:
    """A fault in args, env or stdin names the key and the kind, never the value (B54)."""
    told = faults(
        env={"TOKEN": "hunter2\x00", "X": ["hunter2"]},
        stdin="hunter2\0",
        args={"key": "hunter2", "n": float("nan")},
    )

    assert len(told) == 4
    assert "hunter2" not in " ".join(told)


def test_faults_are_printable_whatever_was_written() -> None:
    """Foreign text in a fault has no escapes or line ends in it."""
    table = {"a\x1b[31m\n": 1, "overlap": "\x1b]0;x\x07", "timezone": "\n", "cron": "\x00", "group": "\u202e"}
    _, found = parse_jobs({"jobs": {"\x1b[2J": table}, "\x1b": 1}, None, SETTINGS)

    assert len(found) >= 7
    assert all(str(fault).isprintable() for fault in found)


def test_the_api_gets_all_faults_in_one_error() -> None:
    """parse_definition raises once, with everything."""
    with pytest.raises(Invalid) as refused:
        parse_definition("job", {"cron": "x", "overlap": "queu", "shell": 1}, SETTINGS)

    assert {fault.key for fault in refused.value.faults} == {"cron", "overlap", "shell"}


@pytest.mark.parametrize("table", [None, [], "x", 5])
def test_the_api_refuses_what_is_no_object(table: object) -> None:
    """A definition that is no JSON object is Invalid."""
    with pytest.raises(Invalid, match="must be a table"):
        parse_definition("job", table, SETTINGS)
