"""A trigger with the job's start, end, exclusions and jitter laid over it.

`Schedule` answers the same questions as a trigger, about the fires that remain, and two more: how many
fires the exclusions took out of a span, and when the fire of a slot is to start once jitter is added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from math import gcd
from typing import Final

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.errors import Invalid
from scheduler.model.cron import Cron
from scheduler.model.cron_wall import DAY_MINUTES, DayTimes, WallTimes, wall_times
from scheduler.model.durations import format_duration
from scheduler.model.exclusions import HORIZON_SECONDS, NO_EXCLUSIONS, Exclusions, Pattern
from scheduler.model.trigger_kinds import COUNT_CAP, At, Delay, Every, Trigger
from scheduler.model.zones import FIRST_SECOND, LAST_SECOND

# An exclusion that takes out single fires one by one is followed so far and no further.
_MAX_STEPS: Final = 5_000
_LOOK: Final = 400
_REFERENCE: Final[Micros] = 946_684_800 * SECOND  # 2000-01-01: a span of 28 years from here has all dates


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job fires, as its definition says.

    Attributes:
        trigger: the raw fire times.
        start_at: no fire before it (UTC microseconds); None: no bound.
        end_at: no fire after it; a fire at this very instant counts.
        exclusions: fires inside them do not happen; a `delay` that would end in one waits for its end.
        jitter: microseconds by which a start may be put off, stable for each job and slot.
        job_id: what makes the jitter of two jobs differ.

    Raises:
        Invalid: the end lies before the start, the jitter is not smaller than the time between two fires,
            or the exclusions leave no fire within 28 years.
    """

    trigger: Trigger
    start_at: Micros | None = None
    end_at: Micros | None = None
    exclusions: Exclusions = NO_EXCLUSIONS
    jitter: Micros = 0
    job_id: str = ""
    _times: WallTimes | None = field(init=False, repr=False, compare=False)
    _pattern: Pattern | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_times", self._own_times())
        object.__setattr__(self, "_pattern", self._own_pattern())
        if self.start_at is not None and self.end_at is not None and self.end_at < self.start_at:
            raise Invalid("end_at lies before start_at, so the job would never fire")
        _check_jitter(self.trigger, self.jitter)
        if self.exclusions:
            self._check_something_remains()

    def __reduce__(self) -> tuple[type[Schedule], tuple[object, ...]]:
        given = (self.trigger, self.start_at, self.end_at, self.exclusions, self.jitter, self.job_id)
        return Schedule, given

    @property
    def kind(self) -> str:
        """The kind of the trigger."""
        return self.trigger.kind

    def next_fire(self, after: Micros) -> Micros | None:
        """The first remaining fire strictly after `after`; None: none within 28 years or before the end."""
        fire = self._next_raw(after)
        if not self.exclusions or fire is None:
            return fire
        limit = max(fire, FIRST_SECOND * SECOND) + HORIZON_SECONDS * SECOND
        for _ in range(_MAX_STEPS):
            if fire is None or fire > limit:
                return None
            free = self.exclusions.free_from(fire // SECOND, self._pattern)
            if free is None:
                return None
            if free * SECOND <= fire:
                return fire
            fire = self._next_free(free * SECOND)
        return None

    def last_fire(self, at_or_before: Micros) -> Micros | None:
        """The last remaining fire at or before `at_or_before`; None: none in 28 years or since the start."""
        fire = self._last_raw(at_or_before)
        if not self.exclusions or fire is None:
            return fire
        limit = min(fire, LAST_SECOND * SECOND) - HORIZON_SECONDS * SECOND
        for _ in range(_MAX_STEPS):
            if fire is None or fire < limit:
                return None
            free = self.exclusions.free_up_to(fire // SECOND, self._pattern)
            if free is None:
                return None
            if free == fire // SECOND:
                return fire
            fire = self._last_raw(free * SECOND + SECOND - 1)
        return None

    def count_fires(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """How many remaining fires lie in (after, until]: exact up to `cap`, `cap + 1` means more."""
        if not self.exclusions:
            return self._count_raw(after, until, cap)
        excluded = self._count_excluded(after, until)
        if excluded is not None:
            return min(self._count_raw(after, until, excluded + cap) - excluded, cap + 1)
        total, edge = 0, after
        while total <= cap:
            fire = self.next_fire(edge)
            if fire is None or fire > until:
                break
            blocked = self.exclusions.next_excluded(fire // SECOND + 1, until // SECOND + 1)
            stop = until if blocked is None else blocked * SECOND - 1
            total += self._count_raw(fire - 1, stop, cap)
            if blocked is None:
                break
            edge = stop
        return min(total, cap + 1)

    def excluded_between(self, after: Micros, until: Micros, cap: int = COUNT_CAP) -> int:
        """How many fires in (after, until] the exclusions took out; `cap + 1` means more than `cap`.

        Where exclusions and free times alternate thousands of times inside the span, the look is cut and
        the count is a lower bound.
        """
        if not self.exclusions or isinstance(self.trigger, Delay):
            return 0
        excluded = self._count_excluded(after, until)
        if excluded is not None:
            return min(excluded, cap + 1)
        total, edge = 0, after
        for _ in range(_MAX_STEPS):
            fire = self._next_raw(edge)
            if fire is None or fire > until or total > cap:
                break
            free = self.exclusions.free_from(fire // SECOND, self._pattern)
            if free is not None and free * SECOND <= fire:
                blocked = self.exclusions.next_excluded(fire // SECOND + 1, until // SECOND + 1)
                if blocked is None:
                    break
                edge = blocked * SECOND - 1
            else:
                edge = until if free is None else min(free * SECOND - 1, until)
                total += self._count_raw(fire - 1, edge, cap)
        return min(total, cap + 1)

    def due_at(self, slot: Micros) -> Micros:
        """When the fire of `slot` is to start: in [slot, slot + jitter], never after `end_at`.

        The same job and slot give the same answer in every process, so a restart rolls no second number.
        """
        if self.jitter == 0:
            return slot
        digest = blake2b(f"{self.job_id}\0{slot}".encode(), digest_size=8).digest()
        due = slot + (int.from_bytes(digest) * (self.jitter + 1) >> 64)
        return due if self.end_at is None else max(slot, min(due, self.end_at))

    def _next_raw(self, after: Micros) -> Micros | None:
        """The next fire within start and end, exclusions not yet looked at."""
        fire = self.trigger.next_fire(after)
        if self.start_at is not None and fire is not None and fire < self.start_at:
            # A delay has no grid to wait for: the start itself is its first fire.
            delayed = isinstance(self.trigger, Delay)
            fire = self.start_at if delayed else self.trigger.next_fire(self.start_at - 1)
        return None if fire is None or self._is_over(fire) else fire

    def _next_free(self, free: Micros) -> Micros | None:
        """The next fire at or after the end of an excluded stretch."""
        if not isinstance(self.trigger, Delay):
            return self._next_raw(free - 1)
        return None if self._is_over(free) else free

    def _last_raw(self, at_or_before: Micros) -> Micros | None:
        bounded = at_or_before if self.end_at is None else min(at_or_before, self.end_at)
        fire = self.trigger.last_fire(bounded)
        return None if fire is None or (self.start_at is not None and fire < self.start_at) else fire

    def _count_raw(self, after: Micros, until: Micros, cap: int) -> int:
        if isinstance(self.trigger, Delay):
            fire = self._next_raw(after)
            return int(fire is not None and fire <= until)
        begin = after if self.start_at is None else max(after, self.start_at - 1)
        return self.trigger.count_fires(begin, until if self.end_at is None else min(until, self.end_at), cap)

    def _count_excluded(self, after: Micros, until: Micros) -> int | None:
        """How many fires in (after, until] are excluded, if arithmetic can tell."""
        if self._times is None:
            return None
        begin = after if self.start_at is None else max(after, self.start_at - 1)
        end = until if self.end_at is None else min(until, self.end_at)
        return self.exclusions.count_of(self._times, begin // SECOND + 1, end // SECOND + 1)

    def _is_over(self, fire: Micros) -> bool:
        return self.end_at is not None and fire > self.end_at

    def _own_times(self) -> WallTimes | None:
        """The wall times of a cron trigger that shares the exclusions' zone."""
        trigger = self.trigger
        if isinstance(trigger, Cron) and trigger.timezone == self.exclusions.timezone:
            return wall_times(trigger.expression)
        return None

    def _own_pattern(self) -> Pattern | None:
        """The times of day that the trigger can have, if they are few."""
        if self._times is not None:
            day_times = self._times.day_times
            return lambda _: day_times
        if isinstance(self.trigger, Every) and self.trigger.period % MINUTE == 0:
            return partial(_grid_times, self.trigger.period // MINUTE, self.trigger.anchor // SECOND)
        return None

    def _check_something_remains(self) -> None:
        """Refuses exclusions that leave nothing of what the trigger, start and end allow."""
        after = _REFERENCE if self.start_at is None else self.start_at - 1
        if isinstance(self.trigger, At):
            after = self.trigger.instant - 1
        if self._next_raw(after) is not None and self.next_fire(after) is None:
            raise Invalid("the exclusions (`except`) leave no fire time within 28 years: remove some")


def _grid_times(period_minutes: int, anchor_second: int, offset: int) -> DayTimes:
    """The times of day at which a grid of whole minutes can fire, on some day or other."""
    minute, second = divmod(anchor_second + offset, 60)
    return DayTimes(_every_nth(gcd(period_minutes, DAY_MINUTES), minute), 1 << second)


@lru_cache(maxsize=256)
def _every_nth(step: int, minute: int) -> int:
    return sum(1 << of_day for of_day in range(minute % step, DAY_MINUTES, step))


def _check_jitter(trigger: Trigger, jitter: Micros) -> None:
    """Refuses a jitter that could swap or merge two slots."""
    if jitter < 0:
        raise Invalid("jitter cannot be negative")
    gap = smallest_gap(trigger) if jitter else None
    if gap is not None and jitter >= gap:
        raise Invalid(
            f"jitter = {format_duration(jitter)!r} is not smaller than the time between two fires"
            f" ({format_duration(gap)}): write less than that"
        )


@lru_cache(maxsize=1024)
def smallest_gap(trigger: Trigger) -> Micros | None:
    """The shortest time between two fires: for cron as seen in 400 of them; None where it has no meaning."""
    if isinstance(trigger, Every | Delay):
        return trigger.period
    if not isinstance(trigger, Cron):
        return None
    fire, gap = trigger.next_fire(_REFERENCE), None
    for _ in range(_LOOK):
        following = None if fire is None else trigger.next_fire(fire)
        if fire is None or following is None:
            break
        gap = following - fire if gap is None else min(gap, following - fire)
        fire = following
    return gap
