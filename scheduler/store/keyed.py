"""Requests that carry a key: what was answered, so that a repeated one is answered alike and done once.

The answer is made and recorded inside the transaction of the effect. A crash between commit and answer
therefore finds both or neither, and whoever asks again with the same key gets what it would have got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.clock import DAY, Micros
from scheduler.errors import AlreadyDone, Fault, Invalid
from scheduler.model.items import Item
from scheduler.model.runs import Attempt, Run
from scheduler.store.pausevalues import AllOperated
from scheduler.store.values import JobView

HEADER: Final = "Idempotency-Key"
KEPT: Final[Micros] = DAY
"""How long an answer is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a verb left behind, as far as an answer tells of it, read in the verb's own transaction.

    Attributes:
        runs: the runs in flight that a verb on a job lists.
        attempts: those of `run`.
    """

    job: JobView | None = None
    runs: tuple[Run, ...] = ()
    run: Run | None = None
    attempts: tuple[Attempt, ...] = ()
    item: Item | None = None
    all: AllOperated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """An answer as it went out, or would have: status, headers beyond the usual, body as JSON text."""

    status: int
    headers: Mapping[str, str]
    body: str


def judged(before: AlreadyDone, request: str) -> AlreadyDone | Invalid:
    """What a request (by its digest) is told under a key that was used before."""
    if before.request == request:
        return before
    message = f"the key {before.key} belongs to another request of this user: use a fresh one for each"
    return Invalid(f"{HEADER}: {message}", faults=[Fault(key=HEADER, message=message)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """The `Idempotency-Key` of a request; it counts within the user that sent it.

    Attributes:
        request: digest of method, target and body: another request under the same key is refused.
        answer: the answer to the outcome; called in the store's thread, so it must not touch the loop.
    """

    key: str
    request: str
    answer: Callable[[Outcome], RecordedAnswer]
