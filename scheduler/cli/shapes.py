"""What `--json` prints beyond the answers of the control API: the shapes of schedctl's own reports.

`docs/schemas` is made from these and from `scheduler.control.models`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One object of schedctl's own."""

    def to_json(self) -> dict[str, Any]:
        """The object as JSON's values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding(Report):
    """One thing that `doctor` found: a fault is wrong, a note is only worth knowing."""

    check: str
    level: Literal["fault", "note"]
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor(Report):
    """What `doctor` found; `ok`: no fault. `not_looked_at`: what this user could not look at, and why."""

    ok: bool
    findings: list[DoctorFinding]
    not_looked_at: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup(Report):
    """The copy that `backup` made: its path, its size, the state directory it is a copy of."""

    file: str
    bytes: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Report):
    """What `restore` took, the store's size and directory now; `kept`: where the one before is, or null."""

    file: str
    bytes: int
    state: str
    kept: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputText(Report):
    """What `output` prints: all the text of a run; `stream` is the one that was asked for, or null."""

    run: str
    stream: Literal["stdout", "stderr"] | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLine(Report):
    """What `output --follow` and `output --timestamps` print, one a line: a piece as it arrived.

    `dropped` bytes of the stream are missing in its place; `after` is the position behind it.
    """

    run: str
    claim: int
    stream: Literal["stdout", "stderr"]
    at: str
    dropped: int
    after: str
    text: str
