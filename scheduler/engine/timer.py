"""The process's clockwork: APScheduler holds one replaceable wake-up and the daemon's calendar work.

It holds no user job, no definition and no pause flag: those are rows. Two traits of APScheduler 3.11 are
worked around here: it goes silent when the wall clock steps back (so whoever notices a step arms anew),
and it drops what is late by its own grace time (so there is none).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from scheduler.clock import Clock, Micros, from_micros, seconds

_WAKE_UP: Final = "wake-up"


class ApschedulerTimer:
    """`Timer` on APScheduler's AsyncIOScheduler."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._armed: Micros | None = None

    def start(self) -> None:
        """The clockwork runs on the current loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """Nothing is woken any more."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def arm(self, at: Micros | None) -> None:
        """`wake` is called once at wall time `at`, at once if it is past; None disarms."""
        if at is None or at != self._armed:
            self._set(at)
        elif at <= self._clock.now():
            self._wake()

    def _set(self, at: Micros | None) -> None:
        self._armed = at
        if at is None:
            if self._scheduler.get_job(_WAKE_UP) is not None:
                self._scheduler.remove_job(_WAKE_UP)
        elif at <= self._clock.now():
            self._armed = None  # nothing stands for it, should the clock be slewed back to before it
            self._wake()
        else:
            self._scheduler.add_job(
                self._fire, DateTrigger(from_micros(at), UTC), id=_WAKE_UP, replace_existing=True
            )

    def rearm(self) -> None:
        """The wake-up and the calendar follow the wall clock as it is now; after a step it is called."""
        self._set(self._armed)
        now = from_micros(self._clock.now())
        for job in self._scheduler.get_jobs():
            if job.id != _WAKE_UP:
                self._scheduler.modify_job(job.id, next_run_time=job.trigger.get_next_fire_time(None, now))

    def every(self, name: str, period: Micros, work: Callable[[], Awaitable[None]]) -> None:
        """Calendar work of the daemon itself: `work` runs every `period`, never beside itself."""
        anchor = from_micros(self._clock.now())
        self._scheduler.add_job(
            work, IntervalTrigger(seconds=seconds(period), start_date=anchor, timezone=UTC), id=name
        )

    async def _fire(self) -> None:
        self._armed = None
        self._wake()
