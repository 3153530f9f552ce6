"""Values for tests: each builder shows only what matters to the case."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.model.definitions import canonical, decode, wire_seconds, wire_time
from scheduler.model.jobs import JobDefinition, JobId, JsonValue
from scheduler.model.runs import Owner, OwnerId, Run, RunReason
from scheduler.rules.reconcile import Ending, Verdict
from scheduler.store.values import Claimant, Peer

JOB: Final = JobId("job")
_numbers = count(1)


def make_definition(
    job_id: str = "job",
    *,
    every: Micros | None = None,
    cron: str | None = None,
    delay: Micros | None = None,
    at: Micros | None = None,
    manual: bool = False,
    start_at: Micros | None = None,
    end_at: Micros | None = None,
    jitter: Micros | None = None,
    exclude: tuple[str, ...] = (),
    **keys: Any,
) -> JobDefinition:
    """A definition as the store keeps it; by default a command every minute.

    Args:
        exclude: what a job file writes as `except`.
        keys: further keys of the job file; durations in seconds.
    """
    if not manual and all(given is None for given in (every, cron, delay, at)):
        every = MINUTE
    source: dict[str, JsonValue] = {
        "every": None if every is None else wire_seconds(every),
        "cron": cron,
        "delay": None if delay is None else wire_seconds(delay),
        "at": None if at is None else wire_time(at),
        "manual": manual or None,
        "start_at": None if start_at is None else wire_time(start_at),
        "end_at": None if end_at is None else wire_time(end_at),
        "jitter": None if jitter is None else wire_seconds(jitter),
        "except": list(exclude),
        **({"command": ["true"]} if not {"shell", "python", "command"} & set(keys) else {}),
        **keys,
    }
    return decode(job_id, canonical(source))


def make_peer(uid: int = 1000) -> Peer:
    """An operator."""
    return Peer(uid=uid, gid=uid, pid=4242, command="schedctl")


def make_owner(*, boot_id: str = "boot-1") -> Owner:
    """A daemon process of its own."""
    number = next(_numbers)
    return Owner(
        id=OwnerId(f"owner-{number}"), machine_id="machine", boot_id=boot_id, pid=number, start_ticks=number
    )


def make_claimant(
    owner: Owner | None = None,
    *,
    lease: Micros = 60 * SECOND,
    max_running: int = 32,
    groups: Mapping[str, int] | None = None,
) -> Claimant:
    """A daemon that claims."""
    return Claimant(
        owner=owner or make_owner(), lease=lease, max_running=max_running, groups=dict(groups or {})
    )


def make_verdict(run: Run, ending: Ending = Ending.SUCCEEDED, **said: Any) -> Verdict:
    """What a writer that saw `run` as it is says of it."""
    values: dict[str, Any] = {**_SAID[ending], **said}
    return Verdict(**{"run_id": run.id, "claim": run.claim, "expects": run.state, "ending": ending, **values})


_SAID: Final[Mapping[Ending, Mapping[str, Any]]] = {
    Ending.SUCCEEDED: {"exit_code": 0, "result": '"done"'},
    Ending.FAILED: {"reason": RunReason.EXIT_CODE, "message": "exit code 1", "exit_code": 1},
    Ending.RETRY_ASKED: {"message": "not yet", "retry_after": 5 * SECOND},
    Ending.CANCELLED: {"reason": RunReason.CANCELLED, "message": "cancelled"},
    Ending.CRASHED: {"reason": RunReason.OWNER_DIED, "message": "the daemon died"},
    Ending.SHUTDOWN: {"reason": RunReason.SHUTDOWN, "message": "the daemon was stopped"},
    Ending.ITEMS: {},
}
