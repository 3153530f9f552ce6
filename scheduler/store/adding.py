"""Jobs that never were come into the store: all new ones of a slice of a reload in one set.

A hundred thousand of them in files are a start like any other; seven statements for each would be most of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final

from scheduler.clock import Micros
from scheduler.errors import NotFound
from scheduler.model.jobs import Job, JobDefinition, JobId
from scheduler.store.finishing import end_if_past, may_be_exhausted
from scheduler.store.rows import job_from
from scheduler.store.transaction import Transaction, packed
from scheduler.store.values import DefinitionChange, Operated


def known(tx: Transaction, ids: Collection[JobId]) -> set[JobId]:
    """Those of these jobs that ever were, tombstones too."""
    return {row[0] for row in tx.gathered("known_jobs", ids=packed(list(ids)))}


def add_new(tx: Transaction, changes: Sequence[DefinitionChange]) -> list[Operated]:
    """The job of each of these changes stands in the store, completed if its schedule lies in the past.

    Args:
        changes: of jobs that never were, each of another one.
    """
    definitions = [definition_in(change) for change in changes]
    first = tx.next_revision(len(changes)) - len(changes) + 1
    rows = [
        _row(change, definition, first + place, definition.schedule.next_fire(tx.now))
        for place, (change, definition) in enumerate(zip(changes, definitions, strict=True))
    ]
    tx.execute("insert_job", jobs=packed(rows))
    write_definitions(tx, definitions)
    tx.record_all("add", [(change.job_id, None, change.peer, told(change)) for change in changes])
    decoded = {definition.id: definition for definition in definitions}
    found = tx.gathered("live_jobs", ids=packed(list(decoded)))
    jobs = {row[0]: job_from(row, (decoded[row[0]], None)) for row in found}
    return [_judged(tx, jobs[change.job_id]) for change in changes]


def _judged(tx: Transaction, job: Job) -> Operated:
    """Nobody can have run it; all that may have happened to it is that its schedule was over before."""
    if not may_be_exhausted(job) or not end_if_past(tx, job):
        return Operated(job=job, changed=True)
    (row,) = tx.gathered("live_jobs", ids=packed([job.id]))
    return Operated(job=job_from(row, (job.definition, None)), changed=True, completed=True)


def _row(
    change: DefinitionChange, definition: JobDefinition, revision: int, following: Micros | None
) -> tuple[object, ...]:
    """What `insert_job` takes."""
    columns = {**columns_of(definition), **slot_of(definition, following if definition.enabled else None)}
    return (
        change.job_id,
        revision,
        change.origin,
        change.origin_file,
        None if definition.enabled else following,
        *(columns[name] for name in _COLUMNS),
    )


_COLUMNS: Final = ("enabled", "group_name", "max_running", "priority", "tells", "next_fire_at", "due_at")


def write_definitions(tx: Transaction, definitions: Sequence[JobDefinition]) -> None:
    """They stand in a table of their own, so that a fire, which rewrites its job's row, does not copy one."""
    rows = [(definition.id, definition.source) for definition in definitions]
    tx.execute("write_definition", definitions=packed(rows))


def definition_in(change: DefinitionChange) -> JobDefinition:
    """The definition that the change brings.

    Raises:
        NotFound: it brings none.
    """
    if change.definition is None:
        raise NotFound(f"the change of job {change.job_id} brings no definition")
    return change.definition


def columns_of(definition: JobDefinition) -> dict[str, object]:
    """What the job's row repeats of its definition."""
    return {
        "enabled": definition.enabled,
        "group_name": definition.group,
        "max_running": 1 if definition.solo else definition.max_running,
        "priority": definition.priority,
        "tells": definition.alerts.tells_anything,
    }


def slot_of(definition: JobDefinition, next_fire_at: Micros | None) -> dict[str, object]:
    """The slot on the job's row, and when it is due."""
    due_at = None if next_fire_at is None else definition.schedule.due_at(next_fire_at)
    return {"next_fire_at": next_fire_at, "due_at": due_at}


def told(change: DefinitionChange) -> str:
    """What the audit says of it beside the verb."""
    return json.dumps({"origin": change.origin, "file": change.origin_file})
