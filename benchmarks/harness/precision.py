"""How late a job starts when there is little to do: a few dozen jobs, spread over the second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.harness.contender import Contender, Load
from benchmarks.harness.figures import share_below
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict, at_most, milliseconds, number, table


@dataclass(slots=True, kw_only=True)
class Entry:
    """A contender of this section, and how late its starts were."""

    key: str
    contender: Contender
    repetitions: int = 1
    jobs: int = 50
    late: list[float] = field(default_factory=list)
    failure: str = ""


def measure(entries: Sequence[Entry], *, window: int) -> None:
    """Each entry has been measured; the contenders took turns."""
    for repetition in range(max(entry.repetitions for entry in entries)):
        for entry in entries:
            if repetition < entry.repetitions and not entry.failure:
                load = Load(kind="spread", jobs=entry.jobs, folder="", window=window)
                what = f"precision, {entry.contender.name}"
                one = attempt(what, partial(entry.contender.put, load))
                if isinstance(one, str):
                    entry.failure = one
                else:
                    entry.late += one.late


def section(entries: Sequence[Entry]) -> Section:
    """The table of lateness, and the targets."""
    head = ["", "starts", "late p50, ms", "late p99, ms", "latest, ms"]
    ours = next(entry for entry in entries if entry.key == "ours")
    text = table(head, [_row(entry) for entry in entries])
    return Section(title="Precision at low load", text=text, verdicts=tuple(_verdicts(ours)))


def _row(entry: Entry) -> list[str]:
    if not entry.late:
        return [entry.contender.name, f"not measured: {entry.failure}", "", "", ""]
    late = [share_below(entry.late, share) for share in (0.5, 0.99, 1.0)]
    return [entry.contender.name, number(len(entry.late)), *map(milliseconds, late)]


def _verdicts(ours: Entry) -> Iterator[Verdict]:
    for share, bound in ((0.5, 0.003), (0.99, 0.020)):
        late = share_below(ours.late, share)
        target = f"4. lateness p{share * 100:.0f} ≤ {bound * 1e3:.0f} ms at low load"
        yield at_most(target, late, bound, f"{milliseconds(late)} ms")
