"""Where results go: a terminal (colour, tables that fit its width), a pipe (plain text, whole), or JSON.

On a terminal rich draws, and is imported only then. Elsewhere the text has no colour, is never cut and
never wrapped, so that `grep` and `awk` see whole lines. NO_COLOR is kept by both. Text given to this
module is shown as it is, never as markup; who builds it has escaped it (`wording.escape`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO
from unicodedata import east_asian_width

from scheduler.cli.wording import JOB_GLYPHS, RUN_GLYPHS, STYLES, escape
from scheduler.errors import Invalid, SchedulerError

if TYPE_CHECKING:
    from rich.console import Console

_GAP: Final = 2
_NARROWEST: Final = 12
"""Columns of a screen that a cell of many words needs to be read."""

_LONGEST_TABLE: Final = 2_000
"""More rows than this are not laid out by rich (a millisecond each), but written as plain lines."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text and its style in rich's words; a plain screen shows the text alone."""

    text: str
    style: str = ""
    glyph: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `whole` keeps its cells on one line each, whatever has to give way."""

    title: str
    whole: bool = False


class Screen:
    """One place to print to; whether it is a terminal is looked at once.

    Args:
        json_wanted: `record` prints JSON, and everything meant for a person is dropped.
        quiet: nothing meant for a person is shown.
    """

    def __init__(self, *, json_wanted: bool = False, quiet: bool = False, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.json_wanted = json_wanted
        self.quiet = quiet
        self.is_terminal = self._out.isatty()
        self._console: Console | None = None

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None elsewhere, where lines have no end."""
        return self._terminal().width if self.is_terminal else None

    def record(self, value: Any) -> None:
        """The value stands on a line of its own as JSON. ASCII only: no byte of it commands a terminal."""
        self._out.write(json.dumps(value, separators=(",", ":")) + "\n")

    def line(self, *cells: Cell | str) -> None:
        """The cells stand on one line, a blank between them; a terminal breaks it where it must."""
        if self.quiet:
            return
        shown = [Cell(cell) if isinstance(cell, str) else cell for cell in cells]
        if not self.is_terminal:
            self._out.write(" ".join(cell.text for cell in shown) + "\n")
            return
        from rich.text import Text

        parts = [part for cell in shown for part in ((_with_glyph(cell), cell.style), " ")]
        self._terminal().print(Text.assemble(*parts[:-1]), soft_wrap=False)

    def raw(self, text: str) -> None:
        """The text is written as it is."""
        self._out.write(text)
        self._out.flush()

    def facts(self, pairs: Sequence[tuple[str, Cell | str]]) -> None:
        """Labels and their values, one pair a line; pairs without a value are left out."""
        rows = [(label, Cell(value) if isinstance(value, str) else value) for label, value in pairs]
        rows = [(label, value) for label, value in rows if value.text and not self.quiet]
        widest = max((len(label) for label, _ in rows), default=0)
        if not self.is_terminal:
            for label, value in rows:
                self._out.write(f"{label.ljust(widest)}  {value.text}\n")
            return
        self._grid(
            [Column("", whole=True), Column("")], [[Cell(label, "dim"), value] for label, value in rows]
        )

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """The rows under their titles: on a terminal within its width, elsewhere one line per row."""
        if self.quiet:
            return
        shown = _with_glyph if self.is_terminal else _without_glyph
        lines = [[column.title for column in columns], *([shown(cell) for cell in row] for row in rows)]
        widths = [max(_width(line[index]) for line in lines) for index in range(len(columns))]
        if self.is_terminal and len(rows) <= _LONGEST_TABLE:
            if _is_legible(columns, widths, self._terminal().width):
                self._grid(columns, rows)
            else:
                self._stack(columns, rows)
            return
        for line in lines:
            padded = (text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True))
            self._out.write("  ".join(padded).rstrip() + "\n")

    def _stack(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Each row is a few lines: its whole cells, then the others with their titles before them."""
        for row in rows:
            pairs = list(zip(columns, row, strict=True))
            self.line(*(cell for column, cell in pairs if column.whole))
            rest = [(f"  {column.title.lower()}", cell) for column, cell in pairs if not column.whole]
            self.facts([(label, cell) for label, cell in rest if cell.text != "-"])

    def _grid(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        from rich.table import Table
        from rich.text import Text

        titled = any(column.title for column in columns)
        grid = Table(
            box=None, pad_edge=False, show_header=titled, header_style="bold", padding=(0, _GAP, 0, 0)
        )
        for column in columns:
            grid.add_column(Text(column.title), no_wrap=column.whole, overflow="fold")
        for row in rows:
            grid.add_row(*(Text(_with_glyph(cell), cell.style) for cell in row))
        self._terminal().print(grid)

    def _terminal(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                file=self._out, markup=False, emoji=False, highlight=False, legacy_windows=False
            )
        return self._console


def warn(text: str) -> None:
    """The line stands on stderr, after the name of the program."""
    sys.stderr.write(f"schedctl: {text}\n")


def tell(error: SchedulerError) -> None:
    """The error stands on stderr: one line, and one more for each fault of an input that has several."""
    faults = error.faults if isinstance(error, Invalid) else ()
    hint = f"; {error.hint}" if error.hint else ""
    if len(faults) == 1 and faults[0].message not in error.message:
        hint = f": {faults[0]}{hint}"
    warn(escape(f"{error.message}{hint}"))
    for fault in faults if len(faults) > 1 else ():
        warn(f"  {escape(str(fault))}")


def job_cell(state: str) -> Cell:
    """A job's state: glyph, word, colour."""
    return Cell(state, STYLES.get(state, ""), JOB_GLYPHS.get(state, "?"))


def run_cell(state: str, more: str = "") -> Cell:
    """A run's state: glyph, word and what is said beside it, colour."""
    return Cell(f"{state} {more}".rstrip(), STYLES.get(state, ""), RUN_GLYPHS.get(state, "?"))


def leave_quietly() -> None:
    """Nothing more is written to a stdout whose reader went away, not even when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_glyph(cell: Cell) -> str:
    return f"{cell.glyph} {cell.text}" if cell.glyph else cell.text


def _without_glyph(cell: Cell) -> str:
    return cell.text


def _is_legible(columns: Sequence[Column], widths: Sequence[int], room: int) -> bool:
    """A grid within `room` leaves every cell that may be broken enough columns, or breaks none."""
    if sum(widths) + _GAP * (len(columns) - 1) <= room:
        return True
    needs = [
        width if column.whole else min(width, _NARROWEST)
        for column, width in zip(columns, widths, strict=True)
    ]
    return sum(needs) + _GAP * (len(columns) - 1) <= room


def _width(text: str) -> int:
    """Columns that the text takes on a screen (wide East Asian characters take two)."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
