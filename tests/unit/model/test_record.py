"""Values that are frozen for the type checker only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.model.jobs import JobId
from scheduler.model.record import altered
from scheduler.model.runs import Run, RunId, RunState, RunTrigger


def make_run() -> Run:
    return Run(id=RunId("r"), seq=1, job=JobId("job"), state=RunState.RUNNING, trigger=RunTrigger.MANUAL)


def test_a_changed_copy_is_what_replace_makes() -> None:
    """The copy differs in the named fields, and the row that it was made of stays as it was."""
    run = make_run()

    copy = altered(run, state=RunState.FAILED, message="no")

    assert copy == replace(run, state=RunState.FAILED, message="no")
    assert run == make_run()
    assert hash(altered(copy, state=run.state, message=run.message)) == hash(run)


def test_a_field_that_is_not_there_is_refused() -> None:
    """A misspelt field is an error, not one field more."""
    with pytest.raises(TypeError, match="Run has no field mesage"):
        altered(make_run(), mesage="no")
