from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Schedctl
from tests.cli.support.builders import OTHER_RUN, RUN, job, run
from tests.cli.support.client import call, call_on_terminal
from tests.cli.support.stub import StubDaemon


def test_list_shows_state_next_fire_last_run_and_live_runs(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line a job; what is missing reads `-`."""
    going = run(state="running", finished_at=None, progress={"done": 3, "total": 10, "message": "page 3"})
    daemon.jobs(
        job("a", last_run=run(state="failed")),
        job("b", status="paused", next_fire_at=None, live_runs=[going]),
    )

    called = schedctl("list")

    titles, a, b = called.out.splitlines()
    assert called.code == 0
    assert titles.split("  ")[0] == "JOB"
    assert a.startswith("a    active  in ")
    assert "2037-01-01" in a
    assert "failed" in a
    assert a.endswith("-")
    assert b.startswith("b    paused  -")
    assert "3/10: page 3" in b


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"enabled": False}, "disabled"),
        ({"problem": {"code": "no_handler", "message": "gone"}}, "broken"),
        ({"status": "paused", "enabled": False}, "paused"),
        ({"status": "completed"}, "completed"),
    ],
)
def test_list_says_why_an_active_job_does_not_fire(
    schedctl: Schedctl, daemon: StubDaemon, changes: dict[str, object], word: str
) -> None:
    """A disabled or broken job does not read `active`; an operator's word comes first."""
    daemon.jobs(job("a", **changes))

    assert schedctl("list").out.splitlines()[1].split()[1] == word


def test_list_prints_each_job_as_one_json_line(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The lines are the objects of the control API, unchanged, over all pages."""
    jobs = [job(f"job-{n}", description="naïve\x1b[2J") for n in range(7)]
    daemon.jobs(*jobs)
    daemon.page("/v1/jobs", jobs, size=3)

    called = schedctl("list", "--json")

    assert called.lines == jobs
    assert called.out.isascii()
    assert "\x1b" not in called.out


def test_list_takes_globs_and_filters(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Globs are matched here, filters are asked of the daemon."""
    daemon.jobs(job("export-a"), job("export-b"), job("backup"))

    globbed = schedctl("list", "export-*", "--json")
    schedctl("list", "--group", "g", "--status", "paused", "--label", "l")

    assert [each["id"] for each in globbed.lines] == ["export-a", "export-b"]
    [*_, listed] = [asked for asked in daemon.asked if asked.path == "/v1/jobs"]
    assert listed.query == {"group": "g", "status": "paused", "label": "l"}


def test_list_of_a_name_that_does_not_exist_names_the_nearest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3 with the id that was probably meant."""
    daemon.jobs(job("nightly-export"), job("backup"))

    called = schedctl("list", "nightly-exprt")

    assert called.code == 3
    assert called.err == "schedctl: there is no job nightly-exprt; did you mean nightly-export?\n"


def test_list_of_nothing_says_so(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """An empty daemon is no error, and its JSON is no line at all."""
    assert schedctl("list").out == "no jobs\n"
    assert schedctl("list", "--json").out == ""


@pytest.mark.parametrize("width", [60, 200])
def test_list_fits_the_terminal(daemon: StubDaemon, environ: dict[str, str], width: int) -> None:
    """No line is wider than the terminal, no text is lost, and a glyph stands beside each state."""
    live = run(state="running", finished_at=None, progress={"done": 3, "total": 10, "message": "page three"})
    daemon.jobs(job("nightly-export", status="paused", live_runs=[live], last_run=run(state="failed")))

    called = call_on_terminal("list", env=environ, width=width)

    squeezed = "".join(called.plain.split())
    assert called.code == 0
    assert max(len(line) for line in called.plain.splitlines()) <= width
    assert "\x1b[" in called.out
    assert "‖ paused" in called.plain
    for text in ("nightly-export", "2037-01-01", "✗failed", "3/10"):
        assert text in squeezed


def test_wide_terminals_show_a_job_on_one_line(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Where there is room nothing is broken."""
    daemon.jobs(job("nightly-export", last_run=run()))

    called = call_on_terminal("list", env=environ, width=200)

    assert len(called.plain.strip().splitlines()) == 2


def test_colours_stay_off_with_no_color(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """NO_COLOR is kept on a terminal; the words and glyphs say the same."""
    daemon.jobs(job("a", status="paused"))

    called = call_on_terminal("list", env={**environ, "NO_COLOR": "1"}, width=120)

    assert "‖ paused" in called.out
    assert "\x1b[3" not in called.out


def test_a_pipe_gets_whole_lines_without_colour(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Nothing is cut or wrapped for a reader that is no terminal, whatever COLUMNS says."""
    message = "a long message " * 20
    live = run(state="running", finished_at=None, progress={"message": message})
    daemon.jobs(job("a", live_runs=[live]))

    called = call("list", env={**environ, "COLUMNS": "40"})

    assert message.strip() in called.out
    assert "\x1b" not in called.out


def test_values_of_jobs_cannot_command_the_terminal(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Escapes, bells and reordering marks in any value are spelt out, on a terminal and in a pipe."""
    evil = "\x1b]0;x\x07\x9b2J\u202egpj.exe"
    live = run(state="running", finished_at=None, progress={"message": evil})
    paused = {"by": evil, "reason": "operator", "mode": "drain", "since": None, "until": None, "note": evil}
    daemon.jobs(
        job(description=evil, live_runs=[live], pause=paused, labels=[evil], definition={"env": evil})
    )
    daemon.runs(run(message=evil, reason=evil))

    for arguments in (["list"], ["show", "nightly"], ["runs"], ["show", RUN]):
        piped = call(*arguments, env=environ).out
        shown = call_on_terminal(*arguments, env={**environ, "NO_COLOR": "1"}, width=300).plain
        for text in (piped, shown):
            assert "\\e]0;x\\x07\\x9b2J\\u202egpj.exe" in text
            assert not set(text) & {"\x07", "\x9b", "\u202e"}
        assert "\x1b" not in piped


def test_markup_in_values_is_plain_text(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """Square brackets and emoji codes in a value are shown as they are."""
    daemon.jobs(job(description="[red]not red[/red] :smile: [/oops]"))

    called = call_on_terminal("show", "nightly", env=environ, width=120)

    assert "[red]not red[/red] :smile: [/oops]" in called.plain


def test_show_tells_a_job_whole(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Trigger, action, pause with who, why and since when, problem, definition, and the runs."""
    daemon.jobs(
        job(
            description="Export the day",
            status="paused",
            pause={
                "reason": "operator",
                "by": "uid:1000",
                "since": "2026-10-01T00:00:00+00:00",
                "until": None,
                "mode": "drain",
                "note": "disk is full",
            },
            problem={"code": "no_user", "message": "no such user"},
            live_runs=[run(OTHER_RUN, state="running", finished_at=None)],
            labels=["billing"],
        )
    )
    daemon.runs(run(), run(job="another"))

    out = schedctl("show", "nightly").out

    for text in (
        "nightly paused",
        "Export the day",
        "cron 30 2 * * * Europe/Berlin",
        "command /bin/true",
        "by uid:1000, since 2026-10-01",
        "disk is full",
        "no_user: no such user",
        "billing",
        "7 (definition 3)",
        "Live runs",
        OTHER_RUN,
        "Last runs",
        RUN,
    ):
        assert text in out
    assert daemon.asked[-1].query == {"job": "nightly", "limit": "40"}


def test_show_json_is_the_object_of_the_api(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """One line, nothing added and nothing left out, for a job and for a run."""
    daemon.jobs(job())
    daemon.runs(run())

    assert schedctl("show", "nightly", "--json").json == job()
    assert schedctl("show", RUN, "--json").json == run()


def test_show_tells_a_run_whole(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Its outcome, times, progress and each attempt."""
    attempts = [
        {
            "attempt": 1,
            "claim": 1,
            "state": "failed",
            "reason": "exit_code",
            "exit_code": 3,
            "started_at": "2026-10-01T00:30:00+00:00",
            "finished_at": "2026-10-01T00:30:05+00:00",
        },
        {"attempt": 2, "claim": 2, "state": None, "started_at": "2026-10-01T00:31:00+00:00"},
    ]
    daemon.runs(
        run(state="failed", reason="signal", signal=9, exit_code=None, attempts=attempts, result={"rows": 3})
    )

    out = schedctl("show", RUN).out

    assert f"{RUN} failed" in out
    assert "signal, signal 9" in out
    assert 'result       {"rows": 3}' in out
    assert "exit_code, exit 3" in out
    assert "5 s" in out


def test_show_tells_the_times_of_a_retried_run_in_their_order(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """It was queued again after its first start, and says so."""
    daemon.runs(run(queued_at="2026-10-01T02:00:00+00:00", started_at="2026-10-01T00:30:00+00:00"))

    told = [line.partition(" at ")[0] for line in schedctl("show", RUN).out.splitlines() if " at " in line]

    assert told == ["first started", "queued again", "finished"]


def test_show_tells_a_cost_with_the_unit_of_the_budget(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The job knows it; a job that is gone leaves the bare number."""
    daemon.runs(run(cost=0.48))
    bare = schedctl("show", RUN).out
    daemon.jobs(job(definition={"budget": {"unit": "EUR"}}))

    assert re.search(r"^cost +0\.48$", bare, re.MULTILINE)
    assert re.search(r"^cost +0\.48 EUR$", schedctl("show", RUN).out, re.MULTILINE)


def test_show_finds_a_run_by_the_beginning_of_its_id(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """What only one run begins with is enough; what several begin with is usage, and names their jobs."""
    daemon.runs(run(RUN), run(OTHER_RUN, "other"))

    assert schedctl("show", "0193f2c4", "--json").json["id"] == RUN
    both = schedctl("show", "0193f2")
    assert both.code == 2
    assert f"{RUN} (nightly), {OTHER_RUN} (other)" in both.err
    assert schedctl("show", "0000000").code == 3
    assert (
        schedctl("output", "0000000").err == "schedctl: there is no run 0000000; `schedctl runs` lists runs\n"
    )


def test_show_counts_the_items_of_a_batch(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A list that stands in the file may be long: its ends say which one it is, the JSON has all."""
    for first, last in (("ch-1", "ch-24"), ({"key": "ch-1", "n": 1}, {"key": "ch-24", "n": 2})):
        batch = {"concurrency": 4, "items": [first, *(f"x{n}" for n in range(22)), last]}
        daemon.jobs(job("b", definition={"batch": batch}))

        assert "batch  items 24 (ch-1 ... ch-24), concurrency 4\n" in schedctl("show", "b").out
        assert schedctl("show", "b", "--json").json["definition"]["batch"] == batch

    daemon.jobs(job("b", definition={"batch": {"items": ["only"]}}))
    assert "batch  items 1 (only)\n" in schedctl("show", "b").out


def test_show_gives_lengths_of_time_their_unit(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """The JSON has seconds, as ever."""
    daemon.jobs(job("a", definition={"timeout": 300, "every": 120.5, "max_running": 300}))

    out = schedctl("show", "a").out

    assert [line.split(maxsplit=1) for line in out.splitlines()[-3:]] == [
        ["timeout", "5 min"],
        ["every", "120.5 s"],
        ["max_running", "300"],
    ]


def test_too_little_of_a_run_says_how_much_is_needed(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A few characters begin every run's id: it is no wrong id that was given."""
    daemon.runs(run(RUN))

    output, show, cancel = (schedctl(verb, "0193f") for verb in ("output", "show", "cancel"))

    assert (output.code, show.code, cancel.code) == (2, 3, 3)
    for called in (output, show, cancel):
        assert "too short" in called.err
        assert "give at least 6 characters" in called.err


def test_a_misspelt_job_that_looks_like_a_run_is_still_a_job(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A name of the letters a to f may begin a run's id; the nearest job is what helps."""
    daemon.jobs(job("facade"))

    for verb in ("show", "cancel"):
        called = schedctl(verb, "facadde")
        assert called.code == 3
        assert called.err.endswith("did you mean facade?\n")


def test_show_prefers_the_job_where_a_name_may_be_both(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A job may have an id that looks like the beginning of a run's."""
    daemon.jobs(job("0193f2c4"))
    daemon.runs(run(RUN))

    assert schedctl("show", "0193f2c4", "--json").json["id"] == "0193f2c4"


def test_show_of_an_unknown_job_names_the_nearest(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 3 and one line."""
    daemon.jobs(job("nightly-export"))

    called = schedctl("show", "nightly")

    assert called.code == 3
    assert called.err.endswith("did you mean nightly-export?\n")
