"""Writes docs/schemas/*.json: what schedctl prints with --json, as JSON schemas made from the models.

    python scripts/schemas.py [--check]

With --check nothing is written; exit code 1 names the files that are not what the models say.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from scheduler.cli import shapes
from scheduler.control import models

FOLDER: Final = Path(__file__).parents[1] / "docs" / "schemas"

SHAPES: Final[dict[str, tuple[type, str]]] = {
    "job": (models.Job, "list, show JOB, add, edit (one a line)"),
    "job-and-runs": (models.JobAndRuns, "pause, resume, skip-next, edit"),
    "run": (models.Run, "runs, show RUN, run, cancel, retry, retry-now, watch (one a line)"),
    "item": (models.Item, "items (one a line)"),
    "item-and-run": (models.ItemAndRun, "item"),
    "fire-times": (models.FireTimes, "next"),
    "why": (models.Why, "why"),
    "audit-entry": (models.AuditEntry, "audit (one a line)"),
    "reload": (models.Reload, "reload"),
    "status": (models.Status, "status"),
    "problem": (models.Problem, "an answer of the API that says no"),
    "doctor": (shapes.Doctor, "doctor"),
    "backup": (shapes.Backup, "backup"),
    "restore": (shapes.Restored, "restore"),
    "output-text": (shapes.OutputText, "output"),
    "output-line": (shapes.OutputLine, "output --follow, output --timestamps (one a line)"),
}
"""Name of the file -> the shape, and which verbs print it."""


def documents() -> Iterator[tuple[Path, str]]:
    """Every schema and the table of them, each with its whole text."""
    for name, (shape, verbs) in SHAPES.items():
        schema = TypeAdapter(shape).json_schema(mode="serialization")
        head = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": schema.pop("title"),
            "description": f"{_line(schema.pop('description', ''))} Printed by: {verbs}.",
        }
        yield FOLDER / f"{name}.json", json.dumps({**head, **schema}, indent=2) + "\n"
    yield FOLDER / "README.md", _table()


def main() -> int:
    """Writes, or with --check compares; the exit code is returned."""
    stale = [
        (path, text)
        for path, text in documents()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path, _ in stale:
            print(f"{path.name} is not what the models say: run make schemas")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in stale:
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.name}")
    return 0


def _table() -> str:
    rows = [
        f"| [`{name}.json`]({name}.json) | {verbs} | {_line(shape.__doc__ or '')} |"
        for name, (shape, verbs) in SHAPES.items()
    ]
    return "\n".join(
        [
            "# What `--json` prints",
            "",
            "Made by `make schemas` from the models of the control API; do not edit. Members are never left",
            "out: what is not known, or does not apply, is null. New members may come, so ignore those that",
            "you do not know. A verb on several jobs prints",
            '`{"id": …, "error": {"code", "message", "hint"}}` for one that was refused.',
            "",
            "| schema | printed by | what it is |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    sys.exit(main())
