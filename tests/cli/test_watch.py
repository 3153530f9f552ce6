"""`watch RUN`, and `run --wait` where work rests without an end: lines, bar, exit codes, the way on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler.cli.watch import Line, drawn
from tests.cli.conftest import Schedctl
from tests.cli.support.builders import RUN, job, run
from tests.cli.support.client import call_on_terminal
from tests.cli.support.stub import Answer, StubDaemon
from tests.cli.test_start import goes, going, starts

SETTLED = {"done": 2, "total": 3, "failed": 0, "unknown": 1, "message": None}
HELD: dict[str, Any] = {
    "state": "held",
    "finished_at": None,
    "progress": {"done": 5, "total": 24, "failed": 0, "unknown": 0},
}


def shown(daemon: StubDaemon, *states: dict[str, Any], **of_job: Any) -> None:
    """The run is seen so, one look after the other (the first finds it by its name); its job is as told."""
    starts(daemon)
    goes(daemon, states)
    daemon.on("GET", "/v1/jobs/nightly", job(**of_job))


def progressed(done: int, **more: Any) -> dict[str, Any]:
    told = {"done": done, "total": 24, "failed": 0, "unknown": 0, "message": None, **more}
    return going(progress=told, cost=done / 100)


def test_in_a_pipe_each_change_is_a_line(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """What did not change is not told again; the last line is the outcome, and success is 0."""
    shown(daemon, progressed(3), progressed(3), progressed(7, failed=1), run(cost=0.24))
    daemon.jobs(job(definition={"budget": {"unit": "EUR"}}))

    called = schedctl("watch", RUN)

    assert called.code == 0
    first, second, *rest = called.out.splitlines()
    assert first.startswith("running  3/24  ")
    assert first.endswith("cost 0.03 EUR")
    assert second.startswith("running  7/24, 1 failed  ")
    assert re.search(r"  \d+\.\d/(s|min)  .* left  cost 0.07 EUR$", second)
    assert rest[-1] == f"nightly run {RUN} succeeded"


def test_on_a_terminal_there_is_one_bar(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """It is drawn again in its place, and left standing at the end, before the outcome."""
    sixth, twelfth = progressed(6), progressed(12, message="ch\x1b[2J12")
    shown(daemon, sixth, sixth, twelfth, run(state="failed", progress=None))

    called = call_on_terminal("watch", RUN, env=environ, width=120)

    drawn = called.out.split("\r\x1b[K")
    assert called.code == 1
    assert drawn[1].startswith("██████░░░░░░░░░░░░░░░░░░ running  6/24")
    assert drawn[2].startswith("████████████░░░░░░░░░░░░ running  12/24: ch\\e[2J12")
    assert called.plain.splitlines()[-1].startswith(f"nightly run {RUN}")


def test_a_bar_never_wraps(daemon: StubDaemon, environ: dict[str, str]) -> None:
    """A line longer than the terminal would leave its first part behind at the next drawing."""
    shown(daemon, progressed(6, message="x" * 500), run())

    called = call_on_terminal("watch", RUN, env=environ, width=60)

    assert all(len(line) < 60 for line in called.out.split("\r\x1b[K")[1].splitlines()[:1])


@pytest.mark.parametrize(
    ("width", "bar", "told"),
    [(120, 24, "asking for the chapter"), (79, 11, "asking for the chapter"), (64, 8, "asking fo…")],
)
def test_on_a_narrow_terminal_the_time_left_and_the_cost_stay(width: int, bar: int, told: str) -> None:
    """The bar gives way first, then what the work says of itself."""
    message = "asking for the chapter"
    line = Line(state="running", counts="12/24", message=message, rest="2.3/s  7 s left  cost 0.07")

    shown = drawn({"done": 12, "total": 24, "message": message}, 12, line, width - 1)

    assert len(shown) < width
    assert shown == f"{'█' * (bar // 2)}{'░' * (bar - bar // 2)} running  12/24: {told}  {line.rest}"


def test_json_is_an_object_for_each_change(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """With state, reason, progress and cost; nothing else on stdout."""
    shown(daemon, progressed(3), progressed(3), run(state="partial", progress=SETTLED))

    called = schedctl("watch", RUN, "--json")

    assert called.code == 1
    assert [line["state"] for line in called.lines] == ["running", "partial"]
    assert called.lines[0]["progress"]["done"] == 3


@pytest.mark.parametrize("verb", [["watch", RUN], ["run", "nightly", "--wait"]])
class TestRest:
    def test_a_held_run_is_not_waited_for(
        self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str]
    ) -> None:
        """Only an operator lets it go on: exit 1 at once, and how to resume stands on stderr."""
        pause = {"reason": "operator", "by": "uid:0", "since": None, "until": None, "mode": "item"}
        shown(daemon, progressed(4), run(**HELD), status="paused", pause=pause)

        called = schedctl(*verb)

        assert called.code == 1
        assert "held" in called.out
        assert "because job nightly is paused: `schedctl resume nightly` lets it go on" in called.err
        assert f"`schedctl cancel {RUN}` ends it" in called.err

    def test_a_run_that_waits_under_a_hold_is_not_waited_for(
        self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str]
    ) -> None:
        """Its daemon died between the pause and the hold: it does not go on before a resume either."""
        shown(daemon, run(**{**HELD, "state": "waiting", "wish": "hold"}), status="paused")

        called = schedctl(*verb)

        assert called.code == 1
        assert "`schedctl resume nightly` lets it go on" in called.err

    def test_a_hold_that_ends_by_itself_says_when(
        self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str]
    ) -> None:
        """A pause with an end may be worth waiting for; the reader decides."""
        shown(daemon, run(**HELD), status="paused", pause={"until": "2037-01-01T00:00:00+00:00"})

        assert "which ends by itself at 2037-01-01 00:00:00+00:00" in schedctl(*verb).err

    def test_a_run_held_by_the_pause_of_everything_says_so(
        self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str]
    ) -> None:
        """Its job is not paused, so resuming the job would not help."""
        shown(daemon, run(**HELD))

        called = schedctl(*verb)

        assert called.code == 1
        assert "because all jobs are paused: `schedctl resume --all` lets it go on" in called.err

    @pytest.mark.parametrize(
        ("progress", "said"),
        [
            (SETTLED, f"`schedctl items {RUN} --state unknown` lists them"),
            (
                {**SETTLED, "unknown": 0, "failed": 1},
                f"`schedctl retry {RUN} --failed` runs its failed items",
            ),
            ({**SETTLED, "unknown": 0}, f"`schedctl retry {RUN}` runs what is left"),
        ],
    )
    def test_a_partial_run_says_what_is_left_to_do(
        self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str], progress: dict[str, Any], said: str
    ) -> None:
        """It has ended without success: exit 1, and the verb that goes on."""
        shown(daemon, progressed(1), run(state="partial", reason="items_failed", progress=progress))

        called = schedctl(*verb)

        assert called.code == 1
        assert "partial" in called.out
        assert said in called.err

    def test_a_success_needs_no_advice(self, schedctl: Schedctl, daemon: StubDaemon, verb: list[str]) -> None:
        """Nothing stands on stderr."""
        shown(daemon, run())

        assert (schedctl(*verb).code, schedctl(*verb).err) == (0, "")


def test_watching_ends_at_its_timeout(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """Exit 7; the run goes on."""
    shown(daemon, progressed(1))

    called = schedctl("watch", RUN, "--timeout", "0.2s")

    assert called.code == 7
    assert f"run {RUN} is still running" in called.err


def test_watching_bears_a_daemon_that_restarts(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A look that fails is repeated."""
    answers = [Answer(body=run()), Answer(body=progressed(1)), Answer(body=[]), Answer(body=run())]
    daemon.on("GET", f"/v1/runs/{RUN}", lambda _: answers.pop(0))

    assert schedctl("watch", RUN).code == 0
