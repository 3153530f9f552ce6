"""Bytes of output as text: UTF-8, U+FFFD for what is none, no character split between chunks."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scheduler.clock import Micros
from scheduler.executors.output import Chunk, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """A piece of one stream as text; never empty."""

    stream: Stream
    at: Micros
    text: str


class OutputDecoder:
    """Decodes the chunks of one attempt, also over several readings (following a run)."""

    def __init__(self) -> None:
        factory = codecs.getincrementaldecoder("utf-8")
        self._decoders = {stream: factory("replace") for stream in Stream}

    def decode(self, chunk: Chunk) -> str:
        """What has become readable with this chunk; half a character waits for its other half.

        Dropped bytes become a line of their own that tells their number.
        """
        decoder = self._decoders[chunk.stream]
        if not chunk.dropped:
            return decoder.decode(chunk.data)
        half = decoder.decode(b"", final=True)
        decoder.reset()
        return f"{half}\n[truncated, {chunk.dropped} bytes of {chunk.stream} are missing here]\n"

    def finish(self, stream: Stream) -> str:
        """What is left of a stream that gives nothing more: U+FFFD for half a character, else nothing."""
        return self._decoders[stream].decode(b"", final=True)


def as_text(chunks: Iterable[Chunk]) -> Iterator[TextChunk]:
    """The whole output as text, in its order of arrival."""
    decoder = OutputDecoder()
    last = dict.fromkeys(Stream, 0)
    for chunk in chunks:
        last[chunk.stream] = chunk.at
        text = decoder.decode(chunk)
        if text:
            yield TextChunk(stream=chunk.stream, at=chunk.at, text=text)
    for stream, at in last.items():
        text = decoder.finish(stream)
        if text:
            yield TextChunk(stream=stream, at=at, text=text)
