from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import generate_latest

from scheduler.series import Counts, Histograms, Levels

BOUNDS = (0.5, 1, 300)


def text_of(registry: CollectorRegistry) -> str:
    """What a scraper reads, but for the moments at which series came to be."""
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # untyped there
    return re.sub(r"(_created\S* )\S+", r"\1then", text.decode())


def test_counts_read_as_the_counter_of_the_library() -> None:
    """With and without labels, moved, forgotten and never moved, the text is the same."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    plain, named = Counts("a", "A.", (), ours), Counts("b", "B.", ("x", "y"), ours)
    counter = Counter("a", "A.", registry=theirs)
    labelled = Counter("b", "B.", ["x", "y"], registry=theirs)
    assert text_of(ours) == text_of(theirs)

    plain.add(())
    counter.inc()
    for x, y, amount in [("1", 'q"\n', 1), ("2", "", 7), ("1", 'q"\n', 2), ("3", "", 1)]:
        named.add((x, y), amount)
        labelled.labels(x, y).inc(amount)
    named.forget(("3", ""))
    labelled.remove("3", "")

    assert text_of(ours) == text_of(theirs)


def test_levels_read_as_the_gauge_of_the_library() -> None:
    """With and without labels, set, forgotten and never set, the text is the same."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    plain, named = Levels("a", "A.", (), ours), Levels("b", "B.", ("x",), ours)
    gauge, labelled = Gauge("a", "A.", registry=theirs), Gauge("b", "B.", ["x"], registry=theirs)
    assert text_of(ours) == text_of(theirs)

    plain.set((), 4)
    gauge.set(4)
    for x, value in [("1", 0.5), ("2", 1.7e9), ("1", 3)]:
        named.set((x,), value)
        labelled.labels(x).set(value)
    named.forget(("2",))
    labelled.remove("2")

    assert text_of(ours) == text_of(theirs)


def test_histograms_read_as_the_histogram_of_the_library() -> None:
    """A value on a bound falls below it, and one beyond all bounds counts as well; the text is the same."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    plain = Histograms("a", "A.", (), ours, bounds=BOUNDS, unit=8)
    named = Histograms("b", "B.", ("x",), ours, bounds=BOUNDS, unit=8)
    histogram = Histogram("a", "A.", buckets=BOUNDS, registry=theirs)
    labelled = Histogram("b", "B.", ["x"], buckets=BOUNDS, registry=theirs)
    assert text_of(ours) == text_of(theirs)

    for value in (0, 4, 5, 8, 9, 2_400, 2_401):
        plain.observe((), value)
        histogram.observe(value / 8)
        named.observe(("1",), value)
        labelled.labels("1").observe(value / 8)

    assert text_of(ours) == text_of(theirs)
