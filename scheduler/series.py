"""Counters, gauges and histograms for a registry of prometheus_client, cheap to move.

The library's own look for the series under a lock at each move, and take another one to add: that costs a
run more than to tell of it does. These are plain numbers by their labels, asked for when somebody looks.
Promises: the text is the one that the library's own would give; without labels there is one series, from
the start. They are moved and looked at on one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from scheduler.clock import SystemClock, seconds

Labels: TypeAlias = tuple[str, ...]
"""The values of a series' labels, in the order of the names."""

_CLOCK: Final = SystemClock()


class Counts(Collector):
    """A counter."""

    def __init__(self, name: str, text: str, names: Labels, registry: CollectorRegistry) -> None:
        self._about = (name, text)
        self._names = names
        self._values: dict[Labels, int] = {}
        self._created: dict[Labels, float] = {}
        if not names:
            self.add((), 0)
        registry.register(self)

    def add(self, labels: Labels, amount: int = 1) -> None:
        """The series is `amount` higher; its first move makes it."""
        try:
            self._values[labels] += amount
        except KeyError:
            self._values[labels] = amount
            self._created[labels] = seconds(_CLOCK.now())

    def forget(self, labels: Labels) -> None:
        """There is no such series any more."""
        self._values.pop(labels, None)
        self._created.pop(labels, None)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(*self._about, labels=self._names)
        for labels, value in self._values.items():
            family.add_metric(labels, value, self._created[labels])
        yield family


class Levels(Collector):
    """A gauge."""

    def __init__(self, name: str, text: str, names: Labels, registry: CollectorRegistry) -> None:
        self._about = (name, text)
        self._names = names
        self._values: dict[Labels, float] = {} if names else {(): 0}
        registry.register(self)

    def set(self, labels: Labels, value: float) -> None:
        """The series stands at `value`."""
        self._values[labels] = value

    def forget(self, labels: Labels) -> None:
        """There is no such series any more."""
        self._values.pop(labels, None)

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(*self._about, labels=self._names)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Histograms(Collector):
    """A histogram.

    Args:
        bounds: the upper ends of its buckets, in the unit of the format.
        unit: so many of what is observed are one in the unit of the format.
    """

    def __init__(
        self,
        name: str,
        text: str,
        names: Labels,
        registry: CollectorRegistry,
        *,
        bounds: Sequence[float],
        unit: int = 1,
    ) -> None:
        self._about = (name, text)
        self._names = names
        self._unit = unit
        self._ends = [round(bound * unit) for bound in bounds]
        self._told = [_go(bound) for bound in (*bounds, float("inf"))]
        self._series: dict[Labels, _Histogram] = {}
        if not names:
            self._new(())
        registry.register(self)

    def observe(self, labels: Labels, amount: int) -> None:
        """The series has seen `amount`; its first makes it."""
        series = self._series.get(labels) or self._new(labels)
        series.counts[bisect_left(self._ends, amount)] += 1
        series.total += amount

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(*self._about, labels=self._names)
        for labels, series in self._series.items():
            running = accumulate(series.counts)
            family.add_metric(labels, list(zip(self._told, running, strict=True)), series.total / self._unit)
            named = dict(zip(self._names, labels, strict=True))
            family.add_sample(f"{family.name}_created", named, series.created)
        yield family

    def _new(self, labels: Labels) -> _Histogram:
        return self._series.setdefault(labels, _Histogram(len(self._told)))


def _go(number: float) -> str:
    """The number as the format has it."""
    text: str = floatToGoString(number)  # type: ignore[no-untyped-call]  # untyped there
    return text


class _Histogram:
    """One series: how many fell into each bucket, and what they come to."""

    __slots__ = ("counts", "created", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0
        self.created = seconds(_CLOCK.now())
