"""What the control API asks of the daemon: verbs, the output of runs, and facts about itself.

Rows are read through `scheduler.store.protocol.Reads`, beside these. The engine implements `Operations`,
the executors' output files stand behind `Outputs`; the routes know no more of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from scheduler.clock import Micros
from scheduler.errors import Fault
from scheduler.executors.output import START, Chunk, Position, Stream, read_output
from scheduler.model.items import Item, ItemState
from scheduler.model.jobs import JobDefinition, JobId, JsonValue, Overlap, PauseMode
from scheduler.model.runs import OwnerId, Run, RunId
from scheduler.store.pausevalues import AllOperated
from scheduler.store.values import DefinitionChange, Missed, Operated, Peer, Started


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What a reload of the job files did.

    Attributes:
        added: ids of jobs that are new, also those that came back.
        changed: ids whose definition is another one now.
        removed: ids that are in no file any more.
        unchanged: how many jobs were not touched, those that were kept among them.
        kept: ids that stay as they were, because what the files say of them cannot be taken.
        faults: what was wrong; a file with faults kept its old jobs.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    kept: list[str]
    faults: list[Fault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The one reason why a job is not running, or what became of one of its fire times.

    Attributes:
        job: its id.
        blocked: something keeps it from running.
        code: the reason as a word (`paused`, `already_running`, `waiting_for_slot`).
        message: the reason as a sentence.
        since: since when it is so, or None.
        next_possible_at: when it can run at the earliest, or None where that depends on an operator.
        run_id: the run that the reason is about, or None.
    """

    job: JobId
    blocked: bool
    code: str
    message: str
    since: Micros | None = None
    next_possible_at: Micros | None = None
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """What the daemon knows of itself without asking the store.

    Attributes:
        version: of the program.
        instance: id of this process as an owner of claims.
        pid: of this process.
        started_at: when it started.
        draining: it is stopping and starts nothing new.
        last_tick_age: time since the engine last finished a look at what is due; None before the first.
        last_renewal_age: time since leases were last renewed; None before the first.
        store_ok: the last write of the store succeeded.
        loop_lag: by how much the event loop was late when it was last measured.
        faults: what is wrong with the job files as they were last read.
    """

    version: str
    instance: OwnerId
    pid: int
    started_at: Micros
    draining: bool
    last_tick_age: Micros | None
    last_renewal_age: Micros | None
    store_ok: bool
    loop_lag: Micros
    faults: Sequence[Fault] = ()


class Operations(Protocol):
    """The verbs. Each answers after its commit; what is refused is an error of `scheduler.errors`."""

    async def look(self) -> None:
        """Claims of dead owners are being recovered; never waits for processes. Every read calls it first."""
        ...

    async def pause(
        self, job_id: JobId, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None
    ) -> Operated:
        """The job is paused, until that moment where one is named."""
        ...

    async def pause_all(self, mode: PauseMode, note: str, peer: Peer, *, until: Micros | None) -> AllOperated:
        """All jobs are paused, by a pause that is none of theirs."""
        ...

    async def resume_all(self, peer: Peer) -> AllOperated:
        """The pause of all jobs is over."""
        ...

    async def resume(self, job_id: JobId, missed: Missed, peer: Peer) -> Operated:
        """The job is active from now."""
        ...

    async def run(
        self, job_id: JobId, peer: Peer, *, args: str | None, overlap: Overlap | None, new: bool = False
    ) -> Started:
        """A manual run is claimed or queued.

        Args:
            args: JSON text of an object that the run gets instead of the job's `args`, or None.
            overlap: what to do about a run that is live or queued; None = refuse (`AlreadyRunning`).
            new: a fresh batch run also where an earlier one was cut or has unknown items.
        """
        ...

    async def cancel(self, run_id: RunId, peer: Peer, *, force: bool = False) -> Run:
        """The run's wish is `cancel`; `force` releases the row of one that cannot be ended."""
        ...

    async def retry(
        self, run_id: RunId, peer: Peer, *, keys: Sequence[str] | None = None, failed_only: bool = False
    ) -> Run:
        """A run that ended without success is queued again; a batch for these items, or for all not done."""
        ...

    async def settle_item(self, run_id: RunId, key: str, state: ItemState, peer: Peer) -> tuple[Item, Run]:
        """An item is what the operator says it is."""
        ...

    async def retry_now(self, run_id: RunId, peer: Peer) -> Run:
        """A run that waits for its next try may be claimed now."""
        ...

    async def skip_next(self, job_id: JobId, count: int, peer: Peer) -> Operated:
        """The next `count` fire times are passed over."""
        ...

    async def apply(self, change: DefinitionChange) -> Operated:
        """One job is added, replaced or removed."""
        ...

    async def reload(self, peer: Peer) -> ReloadReport:
        """The job files were read again and what is valid in them was applied."""
        ...

    async def why(self, job_id: JobId, at: Micros | None) -> Why:
        """The one reason why the job is not running now, or what became of its fire time `at`."""
        ...

    def status(self) -> StatusFacts:
        """The daemon's state now."""
        ...


class Outputs(Protocol):
    """What attempts wrote."""

    def read(
        self,
        run_id: RunId,
        claim: int,
        *,
        stream: Stream | None = None,
        tail: int | None = None,
        after: Position = START,
    ) -> Iterator[Chunk]:
        """What is kept of one attempt's output behind `after`, oldest first; reads the disk: off the loop.

        Args:
            stream: only this one.
            tail: only the last so many lines.
        """
        ...


class OutputFiles:
    """`Outputs` on the directory where executors keep the output of runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(
        self,
        run_id: RunId,
        claim: int,
        *,
        stream: Stream | None = None,
        tail: int | None = None,
        after: Position = START,
    ) -> Iterator[Chunk]:
        return read_output(self._directory, run_id, claim, stream=stream, tail=tail, after=after)


ParseDefinition: TypeAlias = Callable[[JobId, Mapping[str, JsonValue]], JobDefinition]
"""The keys of a job file for one job, judged; raises Invalid with every fault found."""
