"""Leases inside a transaction: renewed, reported under, looked at, taken over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.clock import MINUTE, Micros
from scheduler.model.runs import Grant, Owner, OwnerId, Run, RunId, Wish
from scheduler.rules.recovery import ClaimSeen
from scheduler.store.rows import job_of, run_of
from scheduler.store.starting import grant_of, record_attempts
from scheduler.store.transaction import Transaction, packed
from scheduler.store.values import Claimant, ClaimRef, Report

_RECENT: Final[Micros] = 10 * MINUTE
_LEFT: Final = "the daemon was stopped; its unit goes on, and the next start takes it up"


def register(tx: Transaction, owner: Owner) -> int:
    """The process start is on record; crashes before another boot or an orderly stop count no more.

    Returns:
        How many daemons died without a word within the last ten minutes.
    """
    deaths = int(tx.value("count_deaths", now=tx.now, since=tx.now - _RECENT))
    last = tx.one("last_owner")
    if last is not None and (last["boot_id"] != owner.boot_id or last["stopped_at"] is not None):
        tx.execute("reset_crashes")
    tx.execute(
        "register_owner",
        id=owner.id,
        machine_id=owner.machine_id,
        boot_id=owner.boot_id,
        pid=owner.pid,
        start_ticks=owner.start_ticks,
        now=tx.now,
    )
    tx.execute("forget_owners")
    return deaths


def sign_off(tx: Transaction, owner: OwnerId) -> None:
    """The process stopped in order."""
    tx.execute("sign_off_owner", id=owner, now=tx.now)


def renew(tx: Transaction, who: Claimant, claims: Sequence[ClaimRef]) -> dict[RunId, Wish]:
    """The claims that are still ours, renewed, each with what the operator wants of it."""
    pairs = packed([(claim.run_id, claim.claim) for claim in claims])
    rows = tx.all("renew_claims", owner=who.owner.id, lease_until=tx.now + who.lease, claims=pairs)
    return {RunId(row["id"]): Wish(row["wish"]) for row in rows}


def report(tx: Transaction, calls: Sequence[Sequence[Report]]) -> list[None]:
    """Signs of life and child identities are on record, where claim and state are still the writer's."""
    reports = [told for reports in calls for told in reports]
    children = [
        (told.run_id, told.claim, told.pid, told.pid_ticks) for told in reports if told.pid is not None
    ]
    if children and tx.execute("report_child", children=packed(children)):
        tx.execute("report_attempt_child", children=packed(children))
    for told in reports:
        if told.progress_at is not None:
            _report_progress(tx, told)
    return [None] * len(calls)


def _report_progress(tx: Transaction, told: Report) -> None:
    progress = told.progress
    tx.execute(
        "report_progress",
        id=told.run_id,
        claim=told.claim,
        progress_at=told.progress_at,
        done=progress.done if progress else None,
        total=progress.total if progress else None,
        failed=progress.failed if progress else None,
        unknown=progress.unknown if progress else None,
        progress_message=progress.message if progress else None,
        cost=told.cost,
    )


def recover(tx: Transaction, claims: Sequence[ClaimSeen]) -> list[Run]:
    """Rows go from running to recovering, for every claim that nobody touched since the look.

    # INVARIANT: I8, an outcome or a renewal that landed between look and write wins over the recovery.
    """
    taken: list[Run] = []
    for seen in claims:
        row = tx.one(
            "take_for_recovery",
            id=seen.run_id,
            claim=seen.claim,
            owner=seen.owner,
            lease_until=seen.lease_until,
        )
        if row is not None:
            taken.append(run_of(row))
    return taken


def reattach(tx: Transaction, who: Claimant, run_id: RunId, claim: int) -> Grant | None:
    """The run goes from recovering to running under a claim of ours, if nobody touched it since the look.

    # INVARIANT: I12, a stopped daemon claims nothing; the next one will.
    """
    if who.draining:
        return None
    lease_until = tx.now + who.lease
    row = tx.one("reattach_run", id=run_id, claim=claim, owner=who.owner.id, lease_until=lease_until)
    if row is None:
        return None
    run = run_of(row)
    tx.execute(
        "pass_attempt_on",
        run=run.id,
        claim=claim,
        now=tx.now,
        message=f"its daemon was gone; its unit went on, and claim {run.claim} took it up",
    )
    record_attempts(tx, [run])
    job_row = tx.one("live_job", id=run.job)
    assert job_row is not None  # noqa: S101 - a job's row outlives its runs
    return grant_of(run, job_of(job_row))


def leave(tx: Transaction, who: Claimant, claims: Sequence[ClaimRef]) -> None:
    """The runs that go on without this daemon say so."""
    for left in claims:
        tx.execute("leave_run", id=left.run_id, claim=left.claim, owner=who.owner.id, message=_LEFT)
