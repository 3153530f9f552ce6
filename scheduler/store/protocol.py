"""The store's verbs: lists in, one result per row out, each verb one transaction.

No caller sees SQL or a transaction, `now` is the store's own clock, and a caller returns only after the
commit (I10). One conformance suite (`tests/store`) states the contract; every store passes it unchanged.

Column authors (I16): *operator*: definition, `enabled`, `status` to paused/active, the pause columns,
`wish`. *Attempt*: outcome, result, progress, child identity. *Engine*: `last_fire_at claim owner
lease_until generation job_counted fires_done`. *Shared*, always conditional on what was seen: `status
next_fire_at due_at`, the failure counters, a run's `state reason message ready_at`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from scheduler.clock import Micros
from scheduler.errors import AlreadyDone, SchedulerError
from scheduler.model.items import Item, ItemCounts
from scheduler.model.jobs import Job, JobId, Pause, Retention
from scheduler.model.listed import ListedJob
from scheduler.model.runs import Attempt, Grant, Owner, OwnerId, Run, RunId, Wish
from scheduler.rules.planning import FirePlan
from scheduler.rules.reconcile import Verdict
from scheduler.rules.recovery import ClaimSeen
from scheduler.store.pausevalues import AllOperated, Expired, PauseAllRequest, ResumeAllRequest
from scheduler.store.values import (
    AuditEntry,
    BeginItems,
    Begun,
    Cancelled,
    Claimant,
    ClaimRef,
    Counts,
    DefinitionChange,
    DueLook,
    Finished,
    Fired,
    ItemOutcome,
    ItemSlice,
    JobView,
    LiveLook,
    Operated,
    PauseRequest,
    Peer,
    Report,
    ResumeRequest,
    SettleItem,
    Started,
    StartRequest,
)


class Reads(Protocol):
    """What may be asked without changing anything; served beside the writer."""

    async def jobs(
        self,
        *,
        after: JobId | None,
        limit: int,
        status: str | None = None,
        group: str | None = None,
        label: str | None = None,
        search: str | None = None,
    ) -> list[ListedJob]:
        """Up to `limit` jobs with id > `after`, by id; removed ones are left out."""
        ...

    async def job(self, job_id: JobId) -> JobView:
        """One job. Raises NotFound."""
        ...

    async def runs(
        self,
        *,
        before: int | None,
        limit: int,
        job: JobId | None = None,
        state: str | None = None,
        since: Micros | None = None,
    ) -> list[Run]:
        """Up to `limit` runs with seq < `before`, newest first."""
        ...

    async def run(self, run_id: RunId) -> Run:
        """One run. Raises NotFound."""
        ...

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Its attempts, oldest first."""
        ...

    async def live_runs(self, job_id: JobId) -> list[Run]:
        """Live and queued runs of the job, oldest first."""
        ...

    async def items(
        self, run_id: RunId, *, state: str | None, after: tuple[int, int] | None, limit: int
    ) -> list[Item]:
        """Up to `limit` items of a run behind the (ready_at, index) of another, in the order of the list.

        Of those in one state the ones that wait for another try come last.
        """
        ...

    async def item(self, run_id: RunId, key: str) -> Item:
        """One item. Raises NotFound."""
        ...

    async def item_counts(self, run_id: RunId) -> ItemCounts | None:
        """How many items are in which state, at one moment; None while there is no whole list."""
        ...

    async def run_at(self, job_id: JobId, fire_time: Micros) -> Run | None:
        """The row that explains a fire time: the run, or the skip whose span holds it."""
        ...

    async def audit(self, job_id: JobId, *, before: int | None, limit: int) -> list[AuditEntry]:
        """The job's mutations and those of all jobs, newest first."""
        ...

    async def counts(self) -> Counts:
        """How many jobs and unfinished runs there are."""
        ...

    async def newest_run(self) -> int:
        """The place in the history of its newest row; 0: there was none yet."""
        ...

    async def ran_since(self, after: int, *, limit: int) -> tuple[list[JobId], int]:
        """The jobs of up to `limit` rows of the history behind `after`, and the place of the last of them."""
        ...

    async def surplus_of(self, kept: Retention, jobs: Sequence[JobId], *, limit: int) -> list[RunId]:
        """Up to `limit` runs that these jobs do not keep, under the rules of `surplus`."""
        ...

    async def next_fires(self, limit: int) -> dict[JobId, Micros]:
        """When up to `limit` jobs are due next, jitter included, in that order."""
        ...

    async def global_pause(self) -> Pause | None:
        """The pause of all jobs, or None where they are not paused."""
        ...

    async def answered(self, uid: int, key: str, after: Micros) -> AlreadyDone | None:
        """What was answered to this user's request with this key after that moment, or None."""
        ...

    async def claimed_in_group(self, group: str) -> int:
        """Claims in force of jobs of this group."""
        ...

    async def controllers(self) -> dict[int, int]:
        """Main processes (pid -> start ticks) of live runs whose jobs say `control = true`."""
        ...

    async def broken_jobs(self) -> list[Job]:
        """Jobs whose handler could not be imported."""
        ...

    async def telling_jobs(self, *, after: JobId | None, limit: int) -> list[Job]:
        """A slice of the jobs of which somebody wants to hear, by id, from the first one behind `after`."""
        ...

    async def file_definitions(self) -> dict[JobId, tuple[str | None, str]]:
        """Of every job that came from a file and is not removed: that file, and the definition's text."""
        ...

    async def api_ids(self, among: Collection[JobId]) -> set[JobId]:
        """Which of these ids have jobs that were made through the API."""
        ...


class ItemVerbs(Protocol):
    """The verbs of a batch's worker. # INVARIANT: I9, a done item is never begun again."""

    async def clear_items(self, run_id: RunId, claim: int, *, limit: int) -> bool:
        """Up to `limit` rows of a list that was never whole are gone; True: none is left."""
        ...

    async def put_items(self, piece: ItemSlice) -> None:
        """The slice is part of the list, which no one runs from until it is whole.

        Raises Invalid where a key stands twice, Conflict where the claim moved on.
        """
        ...

    async def complete_items(self, run_id: RunId, claim: int, total: int) -> None:
        """The list is whole and frozen. Raises Conflict where the claim moved on."""
        ...

    async def follow_choice(self, run_id: RunId, claim: int, *, limit: int) -> bool:
        """Up to `limit` failed items that `retry` chose are pending; True: all are. Conflict: claim moved."""
        ...

    async def begin_items(self, who: Claimant, requests: Sequence[BeginItems]) -> list[Begun]:
        """BEGIN_ITEM: the begins are durable, and only those items may be called now (I10)."""
        ...

    async def end_items(self, outcomes: Sequence[ItemOutcome]) -> list[bool]:
        """END_ITEM: each outcome is durable, also a late one of an item that was given up as unknown.

        False: another begin, or an operator, has had the last word. Waits for a store that cannot commit.
        """
        ...

    async def settle_wedged(self, run_id: RunId) -> list[str]:
        """Items left begun by a run that ended, or went on, without them are told unknown (or by policy)."""
        ...


class Store(Reads, ItemVerbs, Protocol):
    """The verbs. Every one may raise StoreUnavailable, and then nothing was changed."""

    @property
    def store_id(self) -> str:
        """Random id of this store, made with it."""
        ...

    # --- the engine's verbs ---
    async def register(self, owner: Owner) -> int:
        """The owner's identity is on record; another boot than the last one resets crash counters.

        Returns:
            How many daemons died without a word within the last ten minutes.
        """
        ...

    async def sign_off(self, owner: OwnerId) -> None:
        """The owner stopped in order."""
        ...

    async def due(self, *, limit: int, late_after: Micros, late_limit: int) -> DueLook:
        """Jobs that are due, earliest first, up to `limit`.

        Args:
            late_limit: how many more that are over `late_after` late, so that a long downtime does not push
                regular jobs out.
        """
        ...

    async def fire(self, who: Claimant, plans: Sequence[FirePlan]) -> list[Fired]:
        """FIRE: each plan whose assumptions still hold moved its job on and made its runs."""
        ...

    async def start(self, who: Claimant, requests: Sequence[StartRequest]) -> list[Started | SchedulerError]:
        """Manual starts, ranked within the batch (I2); a refused one is its error, in its place."""
        ...

    async def claim(self, who: Claimant, *, limit: int) -> tuple[list[Grant], list[Run]]:
        """Queued and waiting runs that may start now are claimed; second: queued ones that expired."""
        ...

    async def renew(self, who: Claimant, claims: Sequence[ClaimRef]) -> dict[RunId, Wish]:
        """The leases of these claims are extended; a run that is missing in the answer was not ours."""
        ...

    async def report(self, reports: Sequence[Report]) -> None:
        """Signs of life and child identities are on record, where the claim is still the writer's."""
        ...

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """FINISH: each verdict reconciled with the live rows and written, in one transaction."""
        ...

    async def look(self) -> LiveLook:
        """Claims as they stand."""
        ...

    async def recover(self, claims: Sequence[ClaimSeen]) -> list[Run]:
        """Rows go from running to recovering, for every claim that is still exactly as seen; those runs."""
        ...

    async def reattach(self, who: Claimant, run_id: RunId, claim: int) -> Grant | None:
        """The run goes from recovering to running, its claim one higher; None: it moved on, or we drain."""
        ...

    async def leave(self, who: Claimant, claims: Sequence[ClaimRef]) -> None:
        """The rows of these runs, where the claim is still ours, say that they go on without a daemon."""
        ...

    async def next_wake(self, after: Micros) -> Micros | None:
        """The earliest moment after `after` at which something could act by itself."""
        ...

    async def surplus(
        self, kept: Retention, *, after: str, limit: int
    ) -> tuple[Sequence[RunId], JobId | None]:
        """Up to `limit` runs that jobs behind `after` do not keep; the job to go on after, None at the end.

        Never unfinished ones, nor runs with unknown items, nor by age the newest executed run of a job that
        there is.
        """
        ...

    async def prune(self, runs: Sequence[RunId]) -> int:
        """Those of these runs that still may go have left the history, with their attempts; how many."""
        ...

    async def pruned(self, *, limit: int) -> list[RunId]:
        """Runs that have left the history, and whose output and items are still to be removed."""
        ...

    async def clear(self, runs: Sequence[RunId], *, limit: int) -> None:
        """Up to `limit` items of pruned runs are gone; a run that has none left is `pruned` no more."""
        ...

    async def prune_records(self, before: Micros | None, *, limit: int) -> int:
        """Up to `limit` each of old audit, jobs removed long ago and old changes are gone; how many.

        A removed job stays while it has a run or a pause.
        """
        ...

    def log_size(self) -> int:
        """Bytes of the write-ahead log on disk; what a reader still needs makes it grow."""
        ...

    async def give_back(self) -> bool:
        """Some of the room that was freed is the file system's again; False: there is little left to give."""
        ...

    async def set_problem(self, job_id: JobId, code: str | None, message: str | None) -> None:
        """Why the job cannot run is on its row (None: it can)."""
        ...

    async def see_wall(self) -> Micros | None:
        """The wall time is remembered; the one that was remembered before."""
        ...

    async def rearm(self, stepped: Micros) -> None:
        """Triggers follow a wall clock that stepped back by `stepped`: none is silent, none fires twice."""
        ...

    # --- the operator's verbs ---
    async def pause(self, requests: Sequence[PauseRequest]) -> list[Operated | SchedulerError]:
        """The jobs are paused; the runs in flight got the wish of the mode, in the same transaction."""
        ...

    async def resume(self, requests: Sequence[ResumeRequest]) -> list[Operated | SchedulerError]:
        """The jobs are active from now; held-back fire times are told as skipped or run, as asked."""
        ...

    async def pause_all(self, request: PauseAllRequest) -> AllOperated:
        """All jobs are paused; the runs in flight got the wish of the mode, in the same transaction."""
        ...

    async def resume_all(self, request: ResumeAllRequest) -> AllOperated:
        """The pause of all jobs is over; jobs that are paused by themselves stay so."""
        ...

    async def expire_pauses(self, peer: Peer) -> Expired:
        """Timed pauses whose moment has come are lifted as of that moment; `peer` is the daemon itself."""
        ...

    async def cancel(self, run_id: RunId, peer: Peer) -> Cancelled:
        """The wish is `cancel`; a run without a worker is ended through FINISH at once."""
        ...

    async def release(self, run_id: RunId, peer: Peer) -> Finished:
        """A live run that cannot be ended is cancelled all the same; its worker is fenced from now."""
        ...

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        """A waiting run may be claimed now."""
        ...

    async def retry(
        self, run_id: RunId, peer: Peer, *, keys: Sequence[str] | None = None, failed_only: bool = False
    ) -> Run:
        """A terminal run that did not succeed is queued again, attempt 1.

        A batch begins what is not done, or only these items, or only the failed ones.
        """
        ...

    async def settle_item(self, request: SettleItem) -> tuple[Item, Run]:
        """The item is as the operator says, and a run that ended is judged anew."""
        ...

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        """The next `count` fire times are passed over and told as skipped."""
        ...

    async def apply(self, changes: Sequence[DefinitionChange]) -> list[Operated | SchedulerError]:
        """All changes in one transaction (a reload), each with its own result."""
        ...

    async def close(self) -> None:
        """What was waiting is committed; the files are closed."""
        ...
