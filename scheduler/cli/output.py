"""`output`: what a run wrote, safe for a terminal unless `--raw`; with `-f` as it is written."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator

import click

from scheduler.cli.connection import segment
from scheduler.cli.selection import complete_either, run_or_last
from scheduler.cli.session import Session, reading_verb
from scheduler.cli.wording import escape_lines


@click.command("output")
@click.argument("run", shell_complete=complete_either)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended, also over a restart.")
@click.option("--stream", type=click.Choice(("stdout", "stderr")), help="Only this stream (default: both).")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines.")
@click.option("--timestamps", is_flag=True, help="Before each line when it came, and from which stream.")
@click.option("--raw", is_flag=True, help="Bytes as they were written, control characters too.")
@reading_verb
def output_verb(
    session: Session,
    run: str,
    *,
    follow: bool,
    stream: str | None,
    tail: int | None,
    timestamps: bool,
    raw: bool,
) -> int:
    r"""Print what RUN wrote to stdout and stderr; control characters are shown as \x1b and the like.

    The name of a job stands for its last run.
    """
    if raw and timestamps:
        raise click.UsageError("--raw prints bytes as they are: leave out --timestamps")
    id = str(run_or_last(session, run)["id"])
    if follow or timestamps:
        from scheduler.cli.following import OutputRecords
        from scheduler.cli.recorded import show_records

        records = OutputRecords(session, id, stream=stream, tail=tail, follow=follow)
        show_records(session.screen, id, records, timestamps=timestamps, raw=raw)
        return 0
    chunks = session.control.stream(f"/v1/runs/{segment(id)}/output", stream=stream, tail=tail)
    if session.screen.json_wanted:
        text = b"".join(chunks).decode(errors="replace")
        session.screen.record({"run": id, "stream": stream, "text": text})
    elif raw:
        _write(chunks)
    else:
        for text in _decoded(chunks):
            session.screen.raw(escape_lines(text))
    return 0


def _write(chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _decoded(chunks: Iterator[bytes]) -> Iterator[str]:
    r"""The text of the chunks, whose borders fall anywhere; bytes that are no UTF-8 read `\xff`."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    held = ""
    for chunk in chunks:
        text = held + decoder.decode(chunk)
        # A `\r` at the border may belong to a line end: what it is shows with the next chunk.
        held = "\r" if text.endswith("\r") else ""
        yield text[: len(text) - len(held)]
    yield held + decoder.decode(b"", final=True)
