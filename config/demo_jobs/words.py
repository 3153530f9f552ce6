"""A plain function that blocks: the daemon calls it in a process of its own, so it blocks nobody."""

from __future__ import annotations

import time
from collections import Counter

from scheduler import RunContext


def count(run: RunContext, *, text: str) -> dict[str, int]:
    """How often each word stands in the text, the most frequent first."""
    words = text.split()
    counts: Counter[str] = Counter()
    for number, word in enumerate(words, start=1):
        time.sleep(1.0)  # noqa: TID251 -- stands for work
        counts[word] += 1
        run.progress(done=number, total=len(words), message=word)
    return dict(counts.most_common())
