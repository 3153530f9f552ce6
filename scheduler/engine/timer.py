"""The process's clockwork: APScheduler holds one replaceable wake-up and the daemon's calendar work.

It holds no user job, no definition and no pause flag: those are rows. Three traits of APScheduler 3.11 are
worked around here: it goes silent when the wall clock steps back (so whoever notices a step arms anew), it
drops what is late by its own grace time (so there is none), and from its moment to our call are several turns
of the loop (so it calls a little earlier, and the loop itself counts down the rest).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from scheduler.clock import MILLISECOND, Alarm, Clock, Micros, from_micros, seconds

_WAKE_UP: Final = "wake-up"
_NEAR: Final[Micros] = 20 * MILLISECOND
"""What is counted down by the loop: too short for a wall clock that is set to matter."""


class ApschedulerTimer:
    """`Timer` on APScheduler's AsyncIOScheduler."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._armed: Micros | None = None
        self._alarm: Alarm | None = None
        self._is_stopped = False

    def start(self) -> None:
        """The clockwork runs on the current loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """Nothing is woken any more."""
        self._is_stopped = True
        self._silence()
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
        self._silence()
        if at is None:
            if self._scheduler.get_job(_WAKE_UP) is not None:
                self._scheduler.remove_job(_WAKE_UP)
            return
        left = at - self._clock.now()
        if left <= 0:
            self._armed = None  # nothing stands for it, should the clock be slewed back to before it
            self._wake()
        elif left > _NEAR:
            moment = DateTrigger(from_micros(at - _NEAR), UTC)
            self._scheduler.add_job(self._come_near, moment, id=_WAKE_UP, replace_existing=True)
        else:
            self._count_down(left)

    def _count_down(self, left: Micros) -> None:
        if not self._is_stopped:
            self._alarm = self._clock.call_later(left, self._ring)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _come_near(self) -> None:
        # Not by a new job of the scheduler, which drops one that comes while another of its name is at work.
        self._silence()
        if self._armed is not None:
            self._count_down(self._armed - self._clock.now())

    def _ring(self) -> None:
        """The moment has come, or is still a hair off by the wall clock."""
        self._set(self._armed)

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
