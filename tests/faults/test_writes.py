"""Issue 6, point 4: each kind of write fails once or for good, or the daemon dies at its commit.

A few hundred writes make up the story of `faulty_story`. Every statement in it fails in one way here, the
ways taking turns; `SCHEDULERD_FAULTS=all` tries all ways, also at the second and the third time (`make
faults`).
"""

from __future__ import annotations

import os
from itertools import cycle, product
from pathlib import Path

import pytest

from tests.support.faulty_sqlite import ERRORS
from tests.support.faulty_story import STATEMENTS, live_through
from tests.support.faulty_world import Fault, World

ALL = os.environ.get("SCHEDULERD_FAULTS") == "all"
WAYS = [
    ("before", "SQLITE_FULL", False),
    ("commit", "kill", False),
    ("before", "SQLITE_BUSY", True),
    ("committed", "kill", False),
    ("before", "SQLITE_IOERR", False),
    ("before", "SQLITE_FULL", True),
    ("before", "SQLITE_BUSY", False),
    ("before", "SQLITE_IOERR", True),
]
"""Where, what, and whether every write fails from then on."""

CASES = (
    [(name, *way, nth) for name, way, nth in product(STATEMENTS, WAYS, (1, 2, 3))]
    if ALL
    else [(name, *way, 1) for name, way in zip(STATEMENTS, cycle(WAYS), strict=False)]
)

pytestmark = pytest.mark.slow


def _id(case: tuple[str, str, str, bool, int]) -> str:
    name, where, what, for_good, nth = case
    return f"{where}-{name}-{what}{'-for-good' if for_good else ''}{f'-{nth}' if ALL else ''}"


@pytest.mark.parametrize("case", CASES, ids=_id)
async def test_a_write_that_fails_breaks_no_promise(
    case: tuple[str, str, str, bool, int], tmp_path: Path
) -> None:
    """I1-I14: after a failing write, or a death at it, rows, ledger and what the operator was told agree."""
    name, where, what, for_good, nth = case
    fault = Fault(point=f"{where}:{name}", do=what, nth=nth, for_good=for_good)
    world = World(tmp_path, fault)

    await live_through(world)

    assert await world.findings() == []
    assert fault.has_struck or nth > 1


async def test_the_story_has_every_write_that_is_listed(tmp_path: Path) -> None:
    """The story without a fault comes to all the statements that the cases are about, and to no other."""
    fault = Fault()
    world = World(tmp_path, fault)

    await live_through(world)

    assert await world.findings() == []
    reached = {point.removeprefix("before:") for point in fault.reached if point.startswith("before:")}
    assert reached - {"begin", "commit"} == set(STATEMENTS)
    assert sum(fault.reached[f"before:{name}"] for name in STATEMENTS) > 200


@pytest.mark.parametrize("point", ["before:begin", "before:commit"])
@pytest.mark.parametrize("error", ERRORS)
async def test_a_commit_that_fails_breaks_no_promise(point: str, error: str, tmp_path: Path) -> None:
    """I10, I14: a transaction that cannot begin, or not commit, is tried again, and told to nobody before."""
    world = World(tmp_path, Fault(point=point, do=error, nth=7 + ERRORS.index(error)))

    await live_through(world)

    assert await world.findings() == []
    assert world.fault.has_struck
