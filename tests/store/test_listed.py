"""A list shows each job as a look at it alone does, though it decodes no definition that is surely sound."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from scheduler.clock import HOUR, SECOND
from scheduler.model.definitions import canonical
from scheduler.model.listed import listed
from tests.support.builders import make_definition
from tests.support.clock import START
from tests.support.desk import Desk

TRIGGERS: list[dict[str, Any]] = [
    {"cron": "30 4 * * mon"},
    {"every": HOUR},
    {"delay": SECOND // 2},
    {"at": START + HOUR},
    {"manual": True},
]
LAID_OVER: list[dict[str, Any]] = [
    {"start_at": "2020-01-01T00:00:00Z"},
    {"start_at": "2030-01-01T00:00:00Z", "end_at": "2029-01-01T00:00:00Z"},
    {"jitter": 40_000_000},
    {"except": ["* * * * *"]},
]


async def as_listed_and_as_shown(desk: Desk) -> tuple[list[Any], list[Any]]:
    """All jobs twice: as a list has them, and as it would have each of them that was read by itself."""
    page = await desk.store.jobs(after=None, limit=99)
    views = [await desk.store.job(job.id) for job in page]
    return page, [listed(view.job, view.last_run, view.live_runs) for view in views]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: next(iter(trigger)))
async def test_a_job_whose_zone_is_gone_is_listed_as_broken(desk: Desk, trigger: dict[str, Any]) -> None:
    """Whatever its trigger, with the message that a look at it gives; the job beside it is as it was."""
    sound = make_definition("sound", **trigger, description="Works", labels=["l"], group="g")
    gone = json.loads(sound.source) | {"timezone": "Mars/Olympus"}
    await desk.add(sound)
    await desk.add(replace(make_definition("gone", **trigger), source=canonical(gone)))

    page, shown = await as_listed_and_as_shown(desk)

    assert page == shown
    broken, works = page
    assert (broken.problem_code, "Mars/Olympus" in (broken.problem_message or "")) == ("broken", True)
    assert (broken.shown.get("description"), works.shown["description"]) == (None, "Works")
    assert works.problem_code is None


@pytest.mark.parametrize("keys", LAID_OVER, ids="-".join)
async def test_what_does_not_agree_with_the_trigger_is_told_in_a_list_too(
    desk: Desk, keys: dict[str, Any]
) -> None:
    """Bounds, jitter and exclusions are judged with the trigger, sound or not."""
    definition = make_definition("job", every=HOUR)
    await desk.add(replace(definition, source=canonical(json.loads(definition.source) | keys)))

    page, shown = await as_listed_and_as_shown(desk)

    assert page == shown
    assert (page[0].problem_code is None) == ("start_at" in keys and "end_at" not in keys)
