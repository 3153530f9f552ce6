"""What earlier attempts left is looked for before a run starts again, and once for each claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.clock import SECOND
from scheduler.engine.clearing import ClearingExecutor, Remembering
from scheduler.errors import SpawnFailed
from scheduler.model.runs import Grant
from tests.support.engine import ScriptedExecutor, Undertaken
from tests.support.executors import Told, grant, shell

GRANTED = grant(shell("true"))


def at_claim(claim: int) -> Grant:
    """The one run, at that claim."""
    return replace(GRANTED, run=replace(GRANTED.run, claim=claim))


async def test_run_that_starts_again_is_cleared_up_to_the_claim_before() -> None:
    """I11: leftovers of claim 2 and older are ended before claim 3 starts; a first attempt has none."""
    undertaker, executor = Undertaken(), ScriptedExecutor()
    clearing = ClearingExecutor(executor, undertaker)

    await clearing.start(at_claim(1), Told())
    assert undertaker.sent == []
    await clearing.start(at_claim(3), Told())

    assert [run.claim for run in undertaker.sent] == [2]


async def test_nothing_starts_beside_what_could_not_be_ended() -> None:
    """I11: the start fails, and says what to do."""
    undertaker, executor = Undertaken(), ScriptedExecutor()
    undertaker.works = False

    with pytest.raises(SpawnFailed, match="could not be ended"):
        await ClearingExecutor(executor, undertaker).start(at_claim(2), Told())

    assert executor.started == []


async def test_what_recovery_found_gone_is_not_looked_for_again() -> None:
    """Nothing begins under a claim of the past: the next start of the run goes through no processes."""
    undertaker = Undertaken()
    remembering = Remembering(undertaker)
    clearing = ClearingExecutor(ScriptedExecutor(), remembering)

    assert await remembering.end_leftovers(at_claim(1).run, SECOND)
    await clearing.start(at_claim(2), Told())
    assert len(undertaker.sent) == 1
    await clearing.start(at_claim(3), Told())

    assert [run.claim for run in undertaker.sent] == [1, 2]


async def test_what_could_not_be_ended_is_looked_for_again() -> None:
    """I11: only what is gone is remembered."""
    undertaker = Undertaken()
    remembering = Remembering(undertaker)
    undertaker.works = False

    assert not await remembering.end_leftovers(at_claim(1).run, SECOND)
    with pytest.raises(SpawnFailed):
        await ClearingExecutor(ScriptedExecutor(), remembering).start(at_claim(2), Told())

    assert len(undertaker.sent) == 2
