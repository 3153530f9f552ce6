"""What a daemon goes through while its store fails: every kind of write once, over two lives."""

from __future__ import annotations

from typing import Final

from scheduler.clock import MINUTE, SECOND
from scheduler.engine.ports import Ended, EndKind
from scheduler.model.jobs import JobDefinition, JobId, Origin, Retention
from scheduler.model.runs import RunState
from scheduler.store.values import ChangeKind, DefinitionChange, Missed
from tests.support.builders import make_definition
from tests.support.faulty_world import World

STATEMENTS: Final = (
    "begin_global_pause",
    "begin_items",
    "change_job",
    "claim_run",
    "clear_items",
    "complete_items",
    "count_items",
    "delete_attempts",
    "delete_runs",
    "end_item",
    "finish_attempt",
    "finish_run",
    "forget_owners",
    "forget_under_pause",
    "forgive_crashes",
    "insert_attempt",
    "insert_job",
    "insert_run",
    "insert_skip",
    "lift_all_wishes",
    "lift_global_pause",
    "lift_wishes",
    "migration",
    "move_job",
    "next_revision",
    "note_pruned",
    "pass_over",
    "pause_job",
    "put_items",
    "record_audit",
    "record_change",
    "register_owner",
    "release_all_held",
    "release_held",
    "remove_job",
    "renew_claims",
    "report_progress",
    "requeue_run",
    "reset_crashes",
    "restore_job",
    "resume_job",
    "set_next_fire",
    "settle_begun",
    "sign_off_owner",
    "start_incarnation",
    "take_for_recovery",
    "wish_run",
    "write_counters",
    "write_definition",
    "write_meta",
)
"""The names of all statements that change something in this story."""

FAILED: Final = Ended(kind=EndKind.EXITED, exit_code=1)


def definitions() -> list[JobDefinition]:
    """One job of each kind."""
    return [
        make_definition("tick", every=MINUTE, on_crash="retry"),
        make_definition("wide", every=90 * SECOND, overlap="allow", max_running=2, catch_up="all"),
        make_definition("slow", delay=50 * SECOND),
        make_definition("hand", manual=True, on_crash="retry", retry={"attempts": 1, "delay": 5}),
        make_definition("cut", manual=True, max_crashes=0),
        make_definition("line", manual=True, overlap="queue", queue_limit=2),
        make_definition("batch", manual=True, batch={"items": ["a", "b", "c"], "concurrency": 2}),
    ]


async def live_through(world: World) -> None:
    """The whole story; a step that finds the daemon dead goes on with the next life."""
    await world.begin()
    for step in (
        _set_up,
        _first_runs,
        _retry,
        _pauses,
        _edits,
        _all_paused,
        _asks_again,
        _cancel,
        _die,
        _after,
        _start_again,
    ):
        if world.fault.is_dead:
            await world.next_life()
        await step(world)


async def _set_up(world: World) -> None:
    desk = world.bench.desk
    changes = [
        DefinitionChange(
            kind=ChangeKind.ADD,
            job_id=definition.id,
            definition=definition,
            origin=Origin.FILE,
            origin_file="jobs.toml",
            peer=desk.peer,
        )
        for definition in definitions()
    ]
    for _ in range(2):
        live = {job.id for job in await world.bench.store.jobs(after=None, limit=99)}
        missing = [change for change in changes if change.job_id not in live]
        if missing and await world.asks(world.bench.store.apply(missing)) is None and world.fault.is_dead:
            await world.next_life()
    world.bench.engine.wake()


async def _start(world: World, job: str) -> None:
    bench = world.bench
    await world.asks(bench.operations.run(JobId(job), bench.desk.peer, args=None, overlap=None))


async def _first_runs(world: World) -> None:
    for job in ("hand", "batch", "cut", "line", "line"):
        await _start(world, job)
    await world.pass_time(61)


async def _retry(world: World) -> None:
    await world.end_all(FAILED)
    await world.pass_time(6)
    await world.end_all()
    await world.pass_time(1)


async def _pauses(world: World) -> None:
    await world.pauses("wide")
    await world.pauses("hand")
    await world.pass_time(95)
    await world.resumes("wide", Missed.ALL)
    await world.resumes("hand", Missed.SKIP)
    await world.end_all()


async def _edits(world: World) -> None:
    desk = world.bench.desk
    await world.asks(desk.edit(make_definition("tick", every=MINUTE, on_crash="retry", timeout=50)))
    await world.asks(desk.remove(JobId("slow")))
    await world.asks(desk.add(make_definition("slow", delay=50 * SECOND)))
    await world.asks(world.bench.store.skip_next(JobId("wide"), 1, desk.peer))


async def _all_paused(world: World) -> None:
    await world.pauses_all()
    await world.pass_time(20)
    await world.resumes_all()
    world.bench.engine.wake()
    await world.pass_time(1)


async def _asks_again(world: World) -> None:
    bench = world.bench
    failed = [run for run in await bench.desk.runs(JobId("cut")) if run.state is RunState.FAILED]
    for run in failed[:1]:
        await world.asks(bench.operations.retry(run.id, bench.desk.peer))
    await world.pass_time(1)


async def _cancel(world: World) -> None:
    bench = world.bench
    await _start(world, "line")
    for execution in bench.executor.live("line")[:1]:
        await world.asks(bench.operations.cancel(execution.grant.run.id, bench.desk.peer))
    await world.pass_time(1)


async def _die(world: World) -> None:
    for job in ("hand", "cut", "batch"):
        await _start(world, job)
    if not world.fault.is_dead:
        await world.abandon()
        await world.begin()


async def _after(world: World) -> None:
    await world.pass_time(65)
    await world.end_all()
    bench = world.bench
    kept = Retention(runs_per_job=1, before=world.clock.now() - SECOND)
    surplus, _ = await bench.store.surplus(kept, after="", limit=100)
    world.pruned |= set(surplus[:2])
    await world.asks(bench.store.prune(surplus[:2]))
    await world.pass_time(30)
    await world.asks(bench.store.sign_off(bench.desk.who.owner.id))


async def _start_again(world: World) -> None:
    """After an orderly stop."""
    await world.abandon()
    await world.begin()
