"""New jobs of one call come into the store together, and as they would one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.clock import HOUR, MINUTE
from scheduler.errors import Conflict, NotFound, SchedulerError
from scheduler.model.jobs import JobDefinition, JobId, JobStatus, Origin
from scheduler.store import defining
from scheduler.store.keyed import RecordedAnswer, RequestKey
from scheduler.store.sqlite import FILE_NAME
from scheduler.store.transaction import Transaction
from scheduler.store.values import ChangeKind, DefinitionChange, Operated
from tests.support.builders import make_definition, make_peer
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.stores import dump, sqlite_store


def adds(*definitions: JobDefinition, file: str = "jobs.toml") -> list[DefinitionChange]:
    return [
        DefinitionChange(
            kind=ChangeKind.ADD,
            job_id=definition.id,
            definition=definition,
            origin=Origin.FILE,
            origin_file=file,
            peer=make_peer(),
        )
        for definition in definitions
    ]


MANY = adds(
    make_definition("minutely", labels=["ä", "b"], group="exports", priority=7),
    make_definition("jittered", cron="30 2 * * *", jitter=MINUTE),
    make_definition("manual", manual=True, args={"quote": "'\"\\\0"}),
    make_definition("waits", delay=HOUR, overlap="allow", max_running=3),
    make_definition("disabled", enabled=False),
    make_definition("told", on_failure="https://alerts.example/"),
    make_definition("past", at=START - HOUR),
    make_definition("put-back"),
    make_definition("to-come", at=START + HOUR),
)


def words(results: Sequence[object]) -> list[object]:
    """What each change came to."""
    return [result.message if isinstance(result, SchedulerError) else result for result in results]


async def test_jobs_added_together_are_as_jobs_added_one_by_one(tmp_path: Path) -> None:
    """Rows, counts, audit and results: one call with many changes leaves what a call for each leaves."""
    found = []
    for name, together in (("one", False), ("many", True)):
        clock = FakeClock()
        path = tmp_path / name / FILE_NAME
        path.parent.mkdir()
        async with sqlite_store(path, clock) as store:
            desk = Desk(store, clock)
            await desk.add(make_definition("put-back"))
            await desk.pause(JobId("put-back"))
            await desk.remove(JobId("put-back"))
            calls = [MANY] if together else [[change] for change in MANY]
            done = [words(await store.apply(call)) for call in calls]
        tables = {table: rows for table, rows in dump(path).items() if table not in ("meta", "owners")}
        found.append(([result for results in done for result in results], tables))

    (results, one), (others, many) = found
    completed = [result.job.id for result in results if isinstance(result, Operated) and result.completed]
    assert completed == ["past"]
    for result, other in zip(results, others, strict=True):
        assert isinstance(result, Operated)
        assert isinstance(other, Operated)
        assert _numberless(other.job) == _numberless(result.job)
        assert (other.changed, other.completed) == (result.changed, result.completed)
    assert one.keys() == many.keys()
    for table, rows in one.items():
        assert _plain(many[table]) == _plain(rows), table


async def test_a_new_row_repeats_what_is_asked_of_many_jobs_at_once(desk: Desk, path: Path) -> None:
    """Group, slots, priority, alerts and the slot that is held back stand beside the definition."""
    await desk.store.apply(MANY)

    rows = {row["id"]: row for row in dump(path)["jobs"]}
    assert (rows["minutely"]["group_name"], rows["minutely"]["priority"]) == ("exports", 7)
    assert {id for id, row in rows.items() if row["tells"]} == {"told"}
    assert {id: row["max_running"] for id, row in rows.items() if row["max_running"] > 1} == {"waits": 3}
    assert {id: row["held_from"] for id, row in rows.items() if row["held_from"]} == {
        "disabled": START + MINUTE
    }


async def test_a_job_that_is_added_under_a_key_has_its_answer(desk: Desk) -> None:
    """I10: effect and answer commit together, so such a change is carried out by itself."""
    key = RequestKey(
        key="k", request="r", answer=lambda _: RecordedAnswer(status=201, headers={}, body="made")
    )
    under_key, plain, other = adds(*(make_definition(name) for name in ("under-key", "plain", "other")))

    await desk.store.apply([replace(under_key, peer=replace(make_peer(), key=key)), plain, other])

    recorded = await desk.store.answered(1000, "k", 0)
    assert recorded is not None
    assert len(await desk.store.jobs(after=None, limit=9)) == 3


def _numberless(job: object) -> object:
    """Jobs that are looked at together get their numbers in another order."""
    return replace(job, revision=0, definition_revision=0, added_revision=0)  # type: ignore[type-var]


def _plain(rows: Sequence[dict[str, object]]) -> list[str]:
    numbers = {"seq", "revision", "definition_revision", "added_revision"}
    drawn = {"id"} if rows and "fire_time" in rows[0] else set()  # a run's
    return sorted(
        json.dumps({column: row[column] for column in row.keys() - numbers - drawn}, sort_keys=True)
        for row in rows
    )


async def test_each_job_has_revisions_of_its_own(desk: Desk) -> None:
    """I4: a revision is used once in the whole store, also where many are drawn at once."""
    before = await desk.add(make_definition("before"))
    done = await desk.store.apply(adds(*(make_definition(f"new-{number}") for number in range(5))))
    after = await desk.add(make_definition("after"))

    jobs = [result.job for result in (before, *done, after) if isinstance(result, Operated)]
    first = jobs[0].revision
    assert [job.revision for job in jobs] == list(range(first, first + 7))
    assert all(job.revision == job.definition_revision == job.added_revision for job in jobs)


async def test_what_cannot_be_added_takes_no_other_with_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: a taken id, an id that comes twice, a change without a definition, a row that the file refuses."""
    monkeypatch.setattr(defining, "_SLICE", 4)
    await desk.add(make_definition("taken"), origin=Origin.API, file=None)
    (empty,) = adds(make_definition("empty"))
    (odd,) = adds(make_definition("odd"))
    changes = [
        *adds(make_definition("a"), make_definition("taken"), make_definition("b"), make_definition("b")),
        *(replace(empty, definition=None), *adds(make_definition("c"))),
        *(replace(odd, origin="nobody"), *adds(make_definition("d"))),  # type: ignore[arg-type]
    ]

    done = await desk.store.apply(changes)

    refused = {place: type(result) for place, result in enumerate(done) if isinstance(result, Exception)}
    assert refused == {1: Conflict, 3: Conflict, 4: NotFound, 6: SchedulerError}
    page = await desk.store.jobs(after=None, limit=20)
    assert [job.id for job in page] == ["a", "b", "c", "d", "taken"]


async def test_new_jobs_of_a_call_cost_few_statements(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many new jobs are a handful of statements for each slice, also beside one that is there."""
    await desk.add(make_definition("taken"))
    asked: list[str] = []
    value, execute = Transaction.value, Transaction.execute

    def counted(kind: object) -> object:
        def call(tx: Transaction, name: str, /, **values: object) -> object:
            asked.append(name)
            return kind(tx, name, **values)  # type: ignore[operator]

        return call

    monkeypatch.setattr(Transaction, "value", counted(value))
    monkeypatch.setattr(Transaction, "execute", counted(execute))

    names = ["taken", *(f"new-{number}" for number in range(100))]
    done = await desk.store.apply(adds(*map(make_definition, names)))

    assert isinstance(done[0], Conflict)
    assert {result.job.status for result in done if isinstance(result, Operated)} == {JobStatus.ACTIVE}
    assert sorted(asked) == sorted(
        [
            *("known_jobs", "next_revision", "insert_job", "write_definition"),
            *("record_audit", "record_change", "live_jobs"),
        ]
    )
