"""A part of the report, and how its measurements are taken: in turn, each failure told in its row."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.harness.processes import Unmeasured
from benchmarks.harness.table import Verdict

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, its markdown, and the targets that it judges."""

    title: str
    text: str
    verdicts: Sequence[Verdict] = field(default_factory=tuple)


def tell(text: str) -> None:
    """Somebody who waits sees how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def attempt(what: str, work: Callable[[], Result]) -> Result | str:
    """What came of it, or why it could not be measured: one that fails never ends the others."""
    tell(what)
    try:
        return work()
    except Unmeasured as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told in the contender's row
        reason = f"{type(error).__name__}: {error}"
    tell(f"{what}: {reason}")
    return " ".join(reason.split())[:160]
