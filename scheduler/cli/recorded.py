"""Records of a run's output shown: as text, as lines with their times, as bytes, or as JSON lines."""

# ruff: noqa: ARG002 - the ways to show records have one signature

from __future__ import annotations

import base64
import codecs
import sys
from collections.abc import Iterable
from typing import Protocol

from scheduler.cli.screen import Screen
from scheduler.cli.wording import Json, escape_lines, instant
from scheduler.clock import from_micros


def show_records(screen: Screen, run: str, records: Iterable[Json], *, timestamps: bool, raw: bool) -> None:
    """Every record is shown when it comes."""
    shown: _Shown
    if screen.json_wanted:
        shown = _Lines(screen, run)
    elif raw:
        shown = _Raw()
    elif timestamps:
        shown = _Stamped(screen)
    else:
        shown = _Text(screen)
    claim = None
    try:
        for record in records:
            if claim not in (None, record.get("claim")):
                shown.begin(record.get("claim"))
            claim = record.get("claim")
            shown.take(record, base64.b64decode(record.get("data") or ""))
    finally:
        shown.end()


class _Shown(Protocol):
    """One way to show records."""

    def begin(self, claim: object) -> None:
        """Another attempt begins."""

    def take(self, record: Json, data: bytes) -> None:
        """The record is shown, or kept until it can be."""

    def end(self) -> None:
        """What was kept is shown."""


class _Decoders:
    r"""Text of each stream; half a character and a `\r` at the border wait for what follows."""

    def __init__(self) -> None:
        factory = codecs.getincrementaldecoder("utf-8")
        self._decoders = {stream: factory("backslashreplace") for stream in ("stdout", "stderr")}
        self._held = dict.fromkeys(self._decoders, "")

    def text(self, stream: str, data: bytes, *, final: bool = False) -> str:
        decoder = self._decoders.get(stream) or self._decoders["stdout"]
        text = self._held.get(stream, "") + decoder.decode(data, final=final)
        held = "\r" if text.endswith("\r") and not final else ""
        self._held[stream] = held
        if final:
            decoder.reset()
        return text[: len(text) - len(held)]

    def rest(self) -> dict[str, str]:
        return {stream: self.text(stream, b"", final=True) for stream in self._decoders}


class _Text:
    """As the run wrote it, control characters spelt out."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._decoders = _Decoders()

    def begin(self, claim: object) -> None:
        self.end()
        self._screen.raw(f"--- attempt with claim {claim} ---\n")

    def take(self, record: Json, data: bytes) -> None:
        if record.get("dropped"):
            self._screen.raw(f"\n{_missing(record)}\n")
        else:
            self._screen.raw(escape_lines(self._decoders.text(str(record.get("stream")), data)))

    def end(self) -> None:
        for text in self._decoders.rest().values():
            self._screen.raw(escape_lines(text))


class _Stamped:
    """A line at a time, each with when its first byte came and from which stream."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._decoders = _Decoders()
        self._begun: dict[str, tuple[str, str]] = {}

    def begin(self, claim: object) -> None:
        self.end()
        self._screen.raw(f"--- attempt with claim {claim} ---\n")

    def take(self, record: Json, data: bytes) -> None:
        stream, at = str(record.get("stream")), _stamp(record.get("at"))
        if record.get("dropped"):
            self._print(at, stream, _missing(record))
            return
        began_at, kept = self._begun.pop(stream, (at, ""))
        *lines, rest = (kept + self._decoders.text(stream, data)).split("\n")
        for line in lines:
            self._print(began_at, stream, line)
            began_at = at
        if rest:
            self._begun[stream] = (began_at, rest)

    def end(self) -> None:
        left = self._decoders.rest()
        for stream, (at, text) in self._begun.items():
            self._print(at, stream, text + left.get(stream, ""))
        self._begun.clear()

    def _print(self, at: str, stream: str, line: str) -> None:
        self._screen.raw(f"{at} {stream}  {escape_lines(line)}\n")


class _Raw:
    """Bytes."""

    def begin(self, claim: object) -> None:
        """Nothing is added to the bytes."""

    def take(self, record: Json, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Nothing is kept."""


class _Lines:
    """One JSON object a record, its data as text."""

    def __init__(self, screen: Screen, run: str) -> None:
        self._screen = screen
        self._run = run
        self._decoders = _Decoders()

    def begin(self, claim: object) -> None:
        self._decoders = _Decoders()

    def take(self, record: Json, data: bytes) -> None:
        stream = str(record.get("stream"))
        shown = {key: record.get(key) for key in ("claim", "stream", "at", "dropped", "after")}
        self._screen.record({"run": self._run, **shown, "text": self._decoders.text(stream, data)})
        self._screen.raw("")

    def end(self) -> None:
        """Half a character is no text."""


def _missing(record: Json) -> str:
    return f"[truncated, {record.get('dropped')} bytes of {record.get('stream')} are missing here]"


def _stamp(at: object) -> str:
    """The arrival in the local zone, to the millisecond."""
    arrived = instant(at)
    return "?" if arrived is None else from_micros(arrived).astimezone().isoformat(timespec="milliseconds")
