"""Which runs a claim takes, among rows in every condition, in which order, and what it writes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import DAY, HOUR, MINUTE, SECOND
from scheduler.model.jobs import JobId, Overlap
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Desk
from tests.support.tables import changed, put_run, rows_of, write

NOW = START + HOUR
RUN = {"state": "queued", "queued_at": NOW - SECOND}
DUE = {"state": "waiting", "ready_at": NOW, "queued_at": NOW - SECOND}
AT_WORK = {"state": "running", "owner": "o", "claim": 1, "lease_until": NOW}
PAUSE = "status = 'paused', pause_mode = 'drain', pause_by = 'x', pause_note = '', pause_since = 1"
PAUSED = f"{PAUSE}, pause_reason = 'operator'"


async def add(desk: Desk, path: Path, job: str, columns: str = "", **keys: Any) -> None:
    """A job by hand with these columns of its row."""
    await desk.add(make_definition(job, manual=True, **keys))
    if columns:
        write(path, f"UPDATE jobs SET {columns} WHERE id = :id", id=job)  # noqa: S608


ALONE: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "queued": (True, "", RUN),
    "waiting-due": (True, "", DUE),
    "waiting-not-due": (False, "", {**DUE, "ready_at": NOW + 1}),
    "held": (False, "", {"state": "held"}),
    "ended": (False, "", {"state": "failed", "ready_at": NOW}),
    "wished-to-hold": (False, "", {**RUN, "wish": "hold"}),
    "of-a-removed-job": (False, "removed_at = 1", RUN),
    "of-a-removed-job-by-hand-under-a-pause": (False, "removed_at = 1", {**RUN, "under_pause": 1}),
    "of-a-paused-job": (False, PAUSED, RUN),
    "of-a-paused-job-by-hand": (False, PAUSED, {**RUN, "trigger": "manual"}),
    "of-a-paused-job-by-hand-under-it": (True, PAUSED, {**RUN, "under_pause": 1}),
    "of-one-that-crashes-paused-under-it": (
        True,
        f"{PAUSE}, pause_reason = 'crashes'",
        {**RUN, "under_pause": 1},
    ),
    "of-one-that-spent-its-budget": (
        False,
        f"{PAUSE}, pause_reason = 'budget'",
        {**RUN, "under_pause": 1},
    ),
    "of-a-completed-job": (False, "status = 'completed'", RUN),
    "of-a-completed-job-started-after": (True, "status = 'completed'", {**RUN, "under_pause": 1}),
    "of-a-disabled-job": (False, "enabled = 0", RUN),
    "of-a-disabled-job-by-hand": (True, "enabled = 0", {**RUN, "trigger": "manual"}),
    "of-a-disabled-job-under-it": (True, "enabled = 0", {**RUN, "under_pause": 1}),
}


async def test_a_claim_takes_what_may_start(desk: Desk, path: Path) -> None:
    """Each condition of a run and of its job, alone against a run that has none of them."""
    for job, (_, columns, run) in ALONE.items():
        await add(desk, path, job, columns)
        put_run(path, job, **run)
    desk.clock.move(HOUR)

    claimed = {grant.run.job for grant in await desk.claim()}

    assert claimed == {job for job, (takes, *_) in ALONE.items() if takes}


BESIDE: list[tuple[str, int, list[dict[str, Any]], dict[str, Any], bool]] = [
    ("queued beside running", 1, [AT_WORK], RUN, False),
    ("queued beside recovering", 1, [{**AT_WORK, "state": "recovering"}], RUN, False),
    ("queued beside waiting", 1, [{**DUE, "ready_at": NOW + 1}], RUN, False),
    ("queued beside held", 1, [{"state": "held"}], RUN, False),
    ("queued beside ended", 1, [{"state": "failed"}], RUN, True),
    ("queued beside running, two slots", 2, [AT_WORK], RUN, True),
    ("queued beside two, two slots", 2, [AT_WORK, {"state": "held"}], RUN, False),
    ("waiting beside running", 1, [AT_WORK], DUE, False),
    ("waiting beside recovering", 1, [{**AT_WORK, "state": "recovering"}], DUE, False),
    ("waiting beside held", 1, [{"state": "held"}], DUE, True),
    ("waiting beside queued", 1, [{**RUN, "wish": "hold"}], DUE, True),
    ("waiting beside running, two slots", 2, [AT_WORK], DUE, True),
]


async def test_a_claim_looks_at_what_holds_the_jobs_slots(desk: Desk, path: Path) -> None:
    """I2: a queued run stands back for all that hold one, one that waits only for those at work."""
    names = {}
    for number, (name, slots, others, run, _) in enumerate(BESIDE):
        job = f"job-{number:02}"
        names[job] = name
        keys: dict[str, Any] = {"overlap": "allow", "max_running": slots} if slots > 1 else {}
        await add(desk, path, job, **keys)
        for place, other in enumerate(others):
            put_run(path, job, f"other-{place}", **other)
        put_run(path, job, **run)
    desk.clock.move(HOUR)

    claimed = [names[grant.run.job] for grant in await desk.claim()]

    assert sorted(claimed) == sorted(name for name, *_, takes in BESIDE if takes)


@pytest.mark.parametrize("state", ["running", "recovering", "held"])
async def test_waiting_runs_are_ranked_behind_those_at_work(desk: Desk, path: Path, state: str) -> None:
    """I2: of two that wait in one batch, only as many go on as the job's slots have room for."""
    await add(desk, path, "job", overlap="allow", max_running=2)
    put_run(path, "job", "other", **{**AT_WORK, "state": state})
    for name in ("first", "second"):
        put_run(path, "job", name, **DUE)
    desk.clock.move(HOUR)

    claimed = [grant.run.id for grant in await desk.claim()]

    assert claimed == (["job/first", "job/second"] if state == "held" else ["job/first"])


@pytest.mark.parametrize(
    ("state", "full"), [("running", True), ("recovering", True), ("waiting", False), ("held", False)]
)
async def test_claims_in_force_fill_the_store(desk: Desk, path: Path, state: str, *, full: bool) -> None:
    """I2: what runs or is being recovered takes the room of another, what waits or is held does not."""
    for job in ("other", "job"):
        await add(desk, path, job)
    put_run(path, "other", **{**AT_WORK, "state": state, "ready_at": NOW + 1})
    put_run(path, "job", **RUN)
    desk.who.max_running = 1
    desk.clock.move(HOUR)

    assert len(await desk.claim()) == (0 if full else 1)


async def test_a_claim_goes_by_priority_then_slot_then_place(desk: Desk, path: Path) -> None:
    """A fire time counts, else since when the run is queued; a limit takes the first, a full group none."""
    jobs = ("late", "early", "queued-early", "queued-early-too", "urgent", "full", "free")
    for job in jobs:
        await add(desk, path, job, catch_up_window=10 * 24 * 3600)
    put_run(path, "full", "at-work", **AT_WORK)
    put_run(path, "late", **RUN, fire_time=NOW - SECOND)
    put_run(path, "early", **{**RUN, "queued_at": NOW}, fire_time=NOW - 5 * SECOND)
    put_run(path, "queued-early", state="queued", queued_at=NOW - 4 * SECOND)
    put_run(path, "queued-early-too", state="queued", queued_at=NOW - 4 * SECOND)
    for job in ("urgent", "full", "free"):
        put_run(path, job, **RUN)
    for job, columns in (
        ("urgent", "priority = 5"),
        ("full", "priority = 9, group_name = 'full'"),
        ("free", "priority = 1, group_name = 'free'"),
    ):
        write(path, f"UPDATE jobs SET {columns} WHERE id = :job", job=job)  # noqa: S608 - literals above
    desk.who.groups = {"full": 1, "free": 1}
    desk.clock.move(HOUR)

    first = [grant.run.job for grant in await desk.claim(limit=2)]
    rest = [grant.run.job for grant in await desk.claim()]

    assert first == ["urgent", "free"]
    assert rest == ["early", "queued-early", "queued-early-too", "late"]


async def test_a_pause_of_all_lets_nothing_be_claimed(desk: Desk, path: Path) -> None:
    """One that is over does, and lets a start by hand pass."""
    await add(desk, path, "job")
    put_run(path, "job", **RUN)
    statement = (
        "INSERT INTO global_pauses (mode, by, note, since, lifted_at) VALUES ('drain', 'x', '', 1, :lifted)"
    )
    write(path, statement, lifted=2)
    write(path, statement, lifted=None)
    desk.clock.move(HOUR)

    assert await desk.claim() == []
    write(path, "UPDATE global_pauses SET lifted_at = 3")
    assert len(await desk.claim()) == 1
    assert (await desk.start(JobId("job"), overlap=Overlap.QUEUE)).run.state == "queued"


@pytest.mark.parametrize(
    ("run", "solo"),
    [
        ({**RUN, "started_at": None}, 1),
        ({**DUE, "started_at": 5, "reason": "owner_died", "message": "gone", "claim": 3}, 0),
    ],
)
async def test_a_claim_writes_its_run_alone(desk: Desk, path: Path, run: dict[str, Any], solo: int) -> None:
    """A new token, owner and lease; when it first started stays; a queued run takes over the job's slots."""
    for job in ("a", "b", "c"):
        await add(desk, path, job)
        put_run(path, job, **{**run, "wish": "run" if job == "b" else "hold"})
    desk.clock.move(HOUR)
    before = rows_of(path)

    (grant,) = await desk.claim()

    told = changed(before, rows_of(path))
    claim = run.get("claim", 0) + 1
    row = told.pop(("runs", "b/run")) or {}
    who = desk.who.owner.id
    assert row == {
        "state": "running",
        "claim": claim,
        "owner": who,
        "lease_until": NOW + desk.who.lease,
        "claimed_at": NOW,
        "progress_at": NOW,
        "definition_revision": 2,
        **(
            {"started_at": NOW, "solo": solo} if solo else {"reason": None, "message": None, "ready_at": None}
        ),
    }
    attempt = told.pop(("attempts", "b/run", str(claim))) or {}
    assert (attempt["owner"], attempt["started_at"], attempt["attempt"]) == (who, NOW, 1)
    assert told == {}
    assert grant.run.claim == claim


@pytest.mark.parametrize(
    ("state", "serial", "stands_back"),
    [("running", 1, True), ("recovering", 1, True), ("waiting", 1, False), ("running", 0, False)],
)
async def test_a_serial_restart_waits_for_one_that_is_in_force(
    desk: Desk, path: Path, state: str, serial: int, *, stands_back: bool
) -> None:
    """Only while one that was restarted so is running, or being recovered."""
    await add(desk, path, "other")
    put_run(path, "other", **{**AT_WORK, "state": state, "serial": serial, "ready_at": NOW + DAY})
    await add(desk, path, "job")
    put_run(path, "job", **{**DUE, "reason": "owner_died"})
    desk.who.serial = True
    desk.clock.move(HOUR)

    grants = await desk.claim()

    assert [grant.run.job for grant in grants] == ([] if stands_back else ["job"])
    assert all(grant.run.serial for grant in grants)


async def test_what_waited_too_long_is_told_alone(desk: Desk, path: Path) -> None:
    """I13: the run of a fire time that is older than its window is skipped; others in the queue are not."""
    for job in ("a", "b", "c"):
        await add(desk, path, job, catch_up_window=60)
        fire_time = NOW - MINUTE - (1 if job == "b" else 0)
        put_run(
            path,
            job,
            state="queued",
            queued_at=fire_time,
            fire_time=fire_time,
            wish="run" if job == "b" else "hold",
        )
    desk.clock.move(HOUR)
    before = rows_of(path)

    assert await desk.claim() == []

    assert changed(before, rows_of(path)) == {
        ("runs", "b/run"): {
            "state": "skipped",
            "reason": "expired",
            "message": "waited in the queue for longer than catch_up_window",
            "finished_at": NOW,
        }
    }


# --- what acts by itself, and when ---
ACTS: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "a waiting run": (True, "", DUE),
    "one that is wished to hold": (False, "", {**DUE, "wish": "hold"}),
    "one of a removed job": (False, "removed_at = 1", {**DUE, "under_pause": 1}),
    "one of a paused job": (False, PAUSED, DUE),
    "one of a paused job, started under it": (True, PAUSED, {**DUE, "under_pause": 1}),
    "a run that is not waiting": (False, "", {"state": "held", "ready_at": NOW}),
    "a pause that lifts itself": (True, f"{PAUSED}, pause_until = {NOW}", {"state": "succeeded"}),
    "that of a removed job": (
        False,
        f"removed_at = 1, {PAUSED}, pause_until = {NOW}",
        {"state": "succeeded"},
    ),
    "a next slot": (True, f"next_fire_at = {NOW}, due_at = {NOW}", {"state": "succeeded"}),
}


@pytest.mark.parametrize("what", ACTS)
async def test_the_next_moment_is_that_of_what_acts_by_itself(desk: Desk, path: Path, what: str) -> None:
    """Strictly after the one that is asked for; under a pause of all, only the end of a pause."""
    acts, columns, run = ACTS[what]
    await add(desk, path, "job", columns)
    await add(desk, path, "beside")
    put_run(path, "job", **run)

    assert await desk.store.next_wake(NOW - 1) == (NOW if acts else None)
    assert await desk.store.next_wake(NOW) is None
    statement = (
        "INSERT INTO global_pauses (mode, by, note, since, until) VALUES ('drain', 'x', '', 1, :until)"
    )
    write(path, statement, until=None)
    assert await desk.store.next_wake(NOW - 1) == (NOW if "lifts itself" in what else None)
    write(path, "UPDATE global_pauses SET until = :until", until=NOW - 1)
    assert await desk.store.next_wake(NOW - 2) == NOW - 1
    assert await desk.store.next_wake(NOW - 1) == (NOW if "lifts itself" in what else None)
    write(path, "UPDATE global_pauses SET lifted_at = 9")
    assert await desk.store.next_wake(NOW - 2) == (NOW if acts else None)


@pytest.mark.parametrize("what", ["a waiting run", "a pause that lifts itself", "a next slot"])
async def test_the_next_moment_is_the_earliest(desk: Desk, path: Path, what: str) -> None:
    """Of several that act by themselves, one after the other."""
    _, columns, run = ACTS[what]
    for job, later in (("b", 5), ("a", 0), ("c", 9)):
        await add(desk, path, job, columns.replace(str(NOW), str(NOW + later)))
        put_run(path, job, **{**run, "ready_at": NOW + later})

    moments = [await desk.store.next_wake(NOW + later) for later in (-1, 0, 5, 9)]

    assert moments == [NOW, NOW + 5, NOW + 9, None]
