"""Verbs under a key: one key, one effect, and the answer that was recorded with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import DAY, SECOND
from scheduler.errors import AlreadyDone, AlreadyRunning, Invalid, StoreUnavailable
from scheduler.model.jobs import JobId, Overlap, PauseMode
from scheduler.rules.reconcile import Ending
from scheduler.store.keyed import Outcome, RecordedAnswer, RequestKey
from scheduler.store.pausevalues import PauseAllRequest, ResumeAllRequest
from scheduler.store.schema import load_queries
from scheduler.store.values import Peer
from tests.support.builders import JOB, make_definition, make_peer
from tests.support.clock import FakeClock
from tests.support.desk import Desk
from tests.support.stores import Opener, dump, pragma, sqlite_store


def keyed(key: str = "k", request: str = "digest", *, uid: int = 1000) -> Peer:
    """An operator whose request has a key; the answer tells what came of it."""

    def answer(outcome: Outcome) -> RecordedAnswer:
        told = outcome.run.id if outcome.run else outcome.job.job.id if outcome.job else "all"
        return RecordedAnswer(status=202, headers={"Location": "/there"}, body=f'"{told}"')

    return replace(make_peer(uid), key=RequestKey(key=key, request=request, answer=answer))


async def test_a_start_that_is_repeated_starts_nothing(desk: Desk) -> None:
    """One key, one run; the answer is the first one's, whatever has become of the run."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    desk.peer = keyed()
    run = (await desk.start(overlap=Overlap.ALLOW)).run
    await desk.finish(run)

    with pytest.raises(AlreadyDone) as again:
        await desk.start(overlap=Overlap.ALLOW)

    assert again.value.recorded == (202, {"Location": "/there"}, f'"{run.id}"')
    assert [one.id for one in await desk.runs()] == [run.id]


async def test_another_request_under_the_key_is_refused(desk: Desk) -> None:
    """A key that was used for something else is a fault of its client, and nothing is done."""
    await desk.add(make_definition())
    desk.peer = keyed()
    await desk.pause()

    desk.peer = keyed(request="another digest")
    with pytest.raises(Invalid, match="another request"):
        await desk.resume()

    assert (await desk.job()).pause is not None


async def test_a_key_counts_within_its_user(desk: Desk) -> None:
    """Another user's key of the same name is another key."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    for uid in (1000, 1001):
        desk.peer = keyed(uid=uid)
        await desk.start(overlap=Overlap.ALLOW)

    assert len(await desk.runs()) == 2


async def test_two_at_once_are_one(desk: Desk) -> None:
    """Both are in one commit; the second finds the answer of the first inside its own transaction."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    desk.peer = keyed()

    results = await asyncio.gather(
        *(desk.start(overlap=Overlap.ALLOW) for _ in range(10)), return_exceptions=True
    )

    assert sum(isinstance(result, AlreadyDone) for result in results) == 9
    assert len(await desk.runs()) == 1


async def test_a_refused_request_may_be_tried_again(desk: Desk) -> None:
    """Nothing was done, so nothing is recorded: the same key starts the run when it can."""
    await desk.add(make_definition(manual=True))
    run = (await desk.start()).run
    desk.peer = keyed()
    with pytest.raises(AlreadyRunning):
        await desk.start()
    await desk.finish(run)

    assert (await desk.start()).grant is not None


async def test_it_is_kept_over_a_restart_and_for_a_day(desk: Desk, opener: Opener, clock: FakeClock) -> None:
    """Another process answers the same; after a day the key is free again."""
    await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
    desk.peer = keyed()
    await desk.start(overlap=Overlap.ALLOW)
    await desk.store.close()

    restarted = Desk(await opener(), clock, peer=keyed())
    clock.move(DAY - SECOND)
    with pytest.raises(AlreadyDone):
        await restarted.start(overlap=Overlap.ALLOW)
    clock.move(2 * SECOND)

    await restarted.start(overlap=Overlap.ALLOW)
    assert len(await restarted.runs()) == 2


async def _prepared(desk: Desk) -> dict[str, Callable[[Peer], Awaitable[Any]]]:
    """Every verb of an operator, each ready to be said once."""
    words = ("pausing", "resuming", "skipping", "cancelling", "forcing", "retrying", "hurrying")
    names = {word: JobId(word) for word in words}
    for word in words:
        await desk.add(make_definition(word, retry={"attempts": 1, "delay": 60}))
    runs = {word: await desk.fired(name) for word, name in names.items()}
    await desk.pause(names["resuming"])
    await desk.finish(runs["retrying"], Ending.CANCELLED)
    await desk.finish(runs["hurrying"], Ending.FAILED)
    store = desk.store

    def by(verb: Callable[[], Awaitable[Any]]) -> Callable[[Peer], Awaitable[Any]]:
        async def said(peer: Peer) -> Any:
            desk.peer = peer
            return await verb()

        return said

    return {
        "pause": by(lambda: desk.pause(names["pausing"])),
        "resume": by(lambda: desk.resume(names["resuming"])),
        "skip_next": lambda peer: store.skip_next(names["skipping"], 1, peer),
        "cancel": lambda peer: store.cancel(runs["cancelling"].id, peer),
        "release": lambda peer: store.release(runs["forcing"].id, peer),
        "retry": lambda peer: store.retry(runs["retrying"].id, peer),
        "retry_now": lambda peer: store.retry_now(runs["hurrying"].id, peer),
        "pause_all": lambda peer: store.pause_all(PauseAllRequest(mode=PauseMode.DRAIN, peer=peer)),
        "resume_all": lambda peer: store.resume_all(ResumeAllRequest(peer=peer)),
        "add": by(lambda: desk.add(make_definition("fresh"))),
        "edit": by(lambda: desk.edit(make_definition("pausing", every=7 * SECOND))),
        "remove": by(lambda: desk.remove(names["skipping"])),
    }


async def test_every_verb_is_done_once(tmp_path: Path) -> None:
    """Said again under its key, each verb answers from the record and leaves every table as it was."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "s.db", clock) as store:
        desk = Desk(store, clock)
        for name, verb in (await _prepared(desk)).items():
            await verb(keyed(name))
            before = dump(tmp_path / "s.db")

            with pytest.raises(AlreadyDone):
                await verb(keyed(name))

            assert dump(tmp_path / "s.db") == before, name


async def test_without_the_record_a_verb_is_done_twice(tmp_path: Path) -> None:
    """The proof of the guard: a store that records nothing starts a second run."""
    queries = dict(load_queries())
    queries["recorded_answer"] = queries["recorded_answer"].replace("WHERE", "WHERE 0 AND")
    clock = FakeClock()
    async with sqlite_store(tmp_path / "s.db", clock, queries=queries) as store:
        desk = Desk(store, clock, peer=keyed())
        await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
        desk.peer = keyed("another")
        await desk.start(overlap=Overlap.ALLOW)
        await desk.start(overlap=Overlap.ALLOW)

        assert len(await desk.runs()) == 2


async def test_effect_and_record_commit_together(tmp_path: Path) -> None:
    """I10: a disk that is full takes neither; when it has room the same key does it, once."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "s.db", clock, busy_timeout_ms=10) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition(manual=True, overlap="allow", max_running=5))
        desk.peer = replace(keyed(), command="x" * 100_000)  # too much for what is left
        await pragma(store, "max_page_count = 1")
        started = asyncio.create_task(desk.start(overlap=Overlap.ALLOW))
        while not started.done():
            await clock.advance(SECOND)
        with pytest.raises(StoreUnavailable):
            await started
        tables = dump(tmp_path / "s.db")
        assert (tables["runs"], tables["answers"]) == ([], [])

        await pragma(store, "max_page_count = 100000")
        await desk.start(overlap=Overlap.ALLOW)

        tables = dump(tmp_path / "s.db")
        assert (len(tables["runs"]), len(tables["answers"])) == (1, 1)


async def test_old_answers_are_forgotten(tmp_path: Path) -> None:
    """The table holds a day, not a life."""
    clock = FakeClock()
    async with sqlite_store(tmp_path / "s.db", clock) as store:
        desk = Desk(store, clock)
        await desk.add(make_definition())
        for number in range(5):
            desk.peer = keyed(f"old-{number}")
            await desk.pause(note=str(number))
        clock.move(2 * DAY)
        desk.peer = keyed("new")

        await desk.resume()

        assert [row["key"] for row in dump(tmp_path / "s.db")["answers"]] == ["new"]


async def test_an_answer_that_cannot_be_made_undoes_the_verb(desk: Desk) -> None:
    """The effect never stands without its record."""
    await desk.add(make_definition())

    def broken(_: Outcome) -> RecordedAnswer:
        raise TypeError("no answer")

    desk.peer = replace(make_peer(), key=RequestKey(key="k", request="r", answer=broken))
    with pytest.raises(Exception, match="no answer"):
        await desk.pause()

    assert (await desk.store.job(JOB)).job.pause is None
