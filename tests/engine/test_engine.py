"""The tick: what is due fires, nothing is lost between a look and a wake-up, one bad tick is not the last."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import HOUR, MILLISECOND, MINUTE, SECOND
from scheduler.engine import engine as engine_module
from scheduler.engine.backlog import SLICE
from scheduler.engine.ports import Ended, EndKind
from scheduler.errors import AlreadyRunning, StoreUnavailable
from scheduler.model.jobs import JobId, JobStatus, Overlap, PauseMode
from scheduler.rules.planning import FirePlan, plan_fire
from scheduler.store.values import Claimant, Fired, Missed
from scheduler.telemetry import Event
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.engine import Bench, bench

pytestmark = pytest.mark.asyncio

_DONE = Ended(kind=EndKind.EXITED, exit_code=0)


def at_once(made: Bench) -> None:
    """Every attempt ends well as soon as it starts."""
    made.executor.script = lambda _: _DONE


async def test_each_fire_time_of_every_trigger_kind_makes_one_run(tmp_path: Path) -> None:
    """I1: `every` and `cron` fire at each slot, `delay` after each end, `at` once, `manual` never."""
    async with bench(tmp_path) as here:
        at_once(here)
        await here.desk.add(make_definition("grid", every=10 * MINUTE))
        await here.desk.add(make_definition("cron", cron="*/20 * * * *"))
        await here.desk.add(make_definition("later", delay=25 * MINUTE))
        await here.desk.add(make_definition("once", at=START + 7 * MINUTE))
        await here.desk.add(make_definition("hand", manual=True))
        here.engine.wake()
        await here.pass_time(HOUR)
        assert here.fire_times("grid") == [START + 10 * MINUTE * n for n in range(1, 6 + 1)]
        assert here.fire_times("cron") == [START + 20 * MINUTE * n for n in range(1, 3 + 1)]
        assert here.fire_times("later") == [START + 25 * MINUTE * n for n in range(1, 2 + 1)]
        assert here.fire_times("once") == [START + 7 * MINUTE]
        assert here.fire_times("hand") == []
        assert (await here.desk.job(JobId("once"))).status is JobStatus.COMPLETED


async def test_wake_up_that_comes_early_fires_nothing_and_is_set_again(tmp_path: Path) -> None:
    """I1: a timer that goes off 5 ms before the slot neither starts it early nor loses it."""
    async with bench(tmp_path) as here:
        at_once(here)
        await here.desk.add(make_definition(every=MINUTE))
        here.engine.wake()
        await here.pass_time(MINUTE - 5 * MILLISECOND)
        here.engine.wake()
        await here.settle()
        assert here.fire_times() == []
        assert here.timer.at == START + MINUTE
        await here.pass_time(5 * MILLISECOND)
        assert here.fire_times() == [START + MINUTE]


async def test_job_whose_planning_breaks_does_not_keep_the_others_from_firing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: it is shown as broken, told, and kept; the jobs that are due with it fire."""

    def plan(job: Any, *rest: Any) -> FirePlan | None:
        if job.id == "bad":
            raise ZeroDivisionError("a fault in its schedule")
        return plan_fire(job, *rest)

    monkeypatch.setattr(engine_module, "plan_fire", plan)
    async with bench(tmp_path) as here:
        at_once(here)
        await here.desk.add(make_definition("bad", every=MINUTE))
        await here.desk.add(make_definition("good", every=MINUTE))
        here.engine.wake()
        await here.pass_time(3 * MINUTE)
        assert len(here.fire_times("good")) == 3
        job = (await here.store.job(JobId("bad"))).job
        assert "a fault in its schedule" in (job.problem_message or "")
        assert len(here.log.of(Event.JOB_BROKEN)) == 1


async def test_tick_that_raises_is_told_and_tried_again(tmp_path: Path) -> None:
    """I14: a bug in one tick does not end the engine; the fire comes when it works again."""
    async with bench(tmp_path) as here:
        at_once(here)
        await here.desk.add(make_definition(every=MINUTE))
        here.engine.wake()
        await here.settle()
        here.store.fail["due"] = RuntimeError("a bug")
        await here.pass_time(MINUTE + 2 * SECOND)
        assert here.fire_times() == []
        assert "a bug" in str(here.log.of(Event.LOOP_BLOCKED)[0]["message"])
        del here.store.fail["due"]
        await here.pass_time(2 * SECOND)
        assert here.fire_times() == [START + MINUTE]


async def test_store_that_cannot_commit_delays_a_fire_and_does_not_lose_it(tmp_path: Path) -> None:
    """I10, I14: nothing starts while no claim is durable; the fire comes when the store works again, once."""
    async with bench(tmp_path) as here:
        at_once(here)
        await here.desk.add(make_definition(every=MINUTE))
        here.engine.wake()
        await here.settle()
        here.store.fail["fire"] = StoreUnavailable("disk full")
        await here.pass_time(MINUTE + 20 * SECOND)
        assert here.executor.started == []
        assert len(here.claims) == 0
        del here.store.fail["fire"]
        await here.pass_time(2 * SECOND)
        assert here.fire_times() == [START + MINUTE]


async def test_more_due_jobs_than_one_slice_all_fire_at_their_moment(tmp_path: Path) -> None:
    """I15: a tick takes a bounded slice and comes back at once for the rest."""
    async with bench(tmp_path, max_running=1_000) as here:
        at_once(here)
        for number in range(2 * SLICE + 7):
            await here.desk.add(make_definition(f"job-{number}", every=MINUTE))
        here.engine.wake()
        await here.pass_time(MINUTE)
        assert len(here.executor.started) == 2 * SLICE + 7


async def test_queued_runs_behind_a_full_group_start_all_the_same(tmp_path: Path) -> None:
    """I13: more queued runs of a full group than a slice holds do not hide one that has room."""
    async with bench(tmp_path, max_running=1, groups={"g": 1}) as here:
        await here.desk.add(make_definition("first", manual=True))
        await here.by_hand("first")
        for number in range(SLICE + 5):
            name = f"group-{number}"
            await here.desk.add(make_definition(name, manual=True, group="g", priority=1))
            await here.by_hand(name)
        await here.desk.add(make_definition("free", manual=True))
        await here.by_hand("free")
        here.desk.who.max_running = 10
        await here.end("first")
        assert len(here.executor.live()) == 2
        assert len(here.executor.live("free")) == 1


async def test_slot_that_comes_free_before_the_tick_hears_of_what_waits_for_it(tmp_path: Path) -> None:
    """I13: a run that FIRE queued starts though the run before it ended between the commit and its answer."""
    async with bench(tmp_path) as here:
        await here.desk.add(make_definition(every=HOUR, overlap="queue"))
        here.engine.wake()
        await here.pass_time(HOUR)
        fire = here.store.fire

        async def answered_late(who: Claimant, plans: list[FirePlan]) -> list[Fired]:
            fired: list[Fired] = await fire(who, plans)
            await here.end()
            return fired

        here.store.fire = answered_late
        await here.pass_time(HOUR)
        await here.settle()  # what came before was settled inside the tick
        assert here.fire_times() == [START + HOUR, START + 2 * HOUR]


async def test_no_wake_up_is_lost_among_concurrent_operators(tmp_path: Path) -> None:
    """I1, I13: whatever operators do around the due moments, every slot has its row."""
    dice = random.Random(7)  # noqa: S311 - a test that can be repeated
    async with bench(tmp_path, max_running=100) as here:
        at_once(here)
        names = [JobId(f"job-{number}") for number in range(8)]
        for name in names:
            await here.desk.add(make_definition(name, every=MINUTE))
        here.engine.wake()

        async def meddle(name: JobId, verb: int) -> None:
            operations, peer = here.operations, here.desk.peer
            if verb == 0:
                await operations.pause(name, PauseMode.DRAIN, "", peer)
                await operations.resume(name, Missed.SKIP, peer)
            elif verb == 1:
                await here.desk.edit(make_definition(name, every=MINUTE, priority=dice.randrange(9)))
                here.engine.wake()
            elif verb == 2:
                with suppress(AlreadyRunning):
                    await here.by_hand(name, overlap=Overlap.QUEUE)
            else:
                await operations.look()

        for _ in range(15):
            await here.pass_time(MINUTE - SECOND)
            passing = asyncio.create_task(here.pass_time(2 * SECOND))
            await asyncio.gather(*(meddle(dice.choice(names), dice.randrange(4)) for _ in range(25)))
            await passing
        await here.pass_time(MINUTE)
        for name in names:
            runs = await here.desk.runs(name)
            told = {run.fire_time for run in runs if run.fire_time is not None}
            spans = [(run.fire_time, run.fire_time_last) for run in runs if run.state == "skipped"]
            last = (await here.desk.job(name)).next_fire_at
            assert last is not None
            slots = set(range(START + MINUTE, last, MINUTE))
            covered = {slot for slot in slots if any(a and a <= slot <= (b or a) for a, b in spans)}
            assert slots <= told | covered, name
            assert len([run for run in runs if run.state == "succeeded" and run.fire_time]) == len(
                {run.fire_time for run in runs if run.state == "succeeded" and run.fire_time}
            )
