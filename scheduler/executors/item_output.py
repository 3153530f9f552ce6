"""The output of a batch: one file for all items, each line with the key of its item before it."""

from __future__ import annotations

import threading
from typing import Final

from scheduler.executors.output import Output, Stream
from scheduler.model.runs import Grant

_LONGEST_PART: Final = 8 * 1024
_SHOWN_KEY: Final = 80


class BatchOutput:
    """Hands each item of a batch its own end of the batch's output.

    Args:
        whole: where everything goes; closed by its owner, once all items have ended.
    """

    def __init__(self, whole: Output) -> None:
        self._whole = whole

    def of(self, grant: Grant) -> Output:
        """The output of one item; what belongs to no item (the list) is written as it comes."""
        return ItemOutput(self._whole, "" if grant.item is None else f"[{grant.item.key[:_SHOWN_KEY]}] ")


class ItemOutput:
    """Lines of one item, whole and marked, so that those of its neighbours do not cut them in two."""

    def __init__(self, whole: Output, mark: str) -> None:
        self._whole = whole
        self._mark = mark.encode("utf-8", "backslashreplace")
        self._lock = threading.Lock()
        self._begun: dict[Stream, bytes] = {}

    def write(self, stream: Stream, data: bytes) -> None:
        """The complete lines are written; the begun one waits for its end, or until it is long."""
        with self._lock:
            *lines, rest = (self._begun.get(stream, b"") + data).split(b"\n")
            if len(rest) > _LONGEST_PART:
                lines, rest = [*lines, rest], b""
            self._begun[stream] = rest
            if lines:
                self._whole.write(stream, b"".join(self._mark + line + b"\n" for line in lines))

    def close(self) -> None:
        """What was begun is written; the batch's output stays open."""
        with self._lock:
            for stream, rest in self._begun.items():
                if rest:
                    self._whole.write(stream, self._mark + rest + b"\n")
            self._begun.clear()
