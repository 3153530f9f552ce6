"""`edit` in an editor: a definition as TOML, applied only if it is still the one that was opened.

A text with faults is opened again with them on top, until it has none or is left as it was. What was written
is never lost: where the daemon refuses it for another reason it stays in a file, whose name is told.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from scheduler.cli.definitions import parse_table
from scheduler.cli.screen import warn
from scheduler.cli.toml import job_file
from scheduler.cli.wording import Json, escape
from scheduler.errors import Conflict, Invalid, SchedulerError

_FAULT: Final = "#! "
_EDITORS: Final = ("sensible-editor", "editor", "nano", "vi")


class EditorFailed(SchedulerError):
    """The editor did not end well, or there is none: nothing was changed."""


def edit_in_editor(job: Json, apply: Callable[[Json], Json]) -> Json | None:
    """What `apply` answered to the edited definition, or None: it was left as it was, and nothing was done.

    Args:
        job: as the API shows it.
        apply: takes the new definition; raises Invalid for faults.

    Raises:
        Conflict: the job is a file's.
        EditorFailed: as it says.
        SchedulerError: the daemon refused it, or (Invalid) its faults were left in it.
    """
    id, definition = str(job["id"]), job.get("definition") or {}
    if job.get("origin") == "file":
        raise Conflict(
            f"job {id} is defined in {job.get('origin_file') or 'a job file'}",
            hint="edit that file, then `schedctl reload`",
        )
    heading = f"Job {id}. Save and leave the editor to apply it; leave it as it is to change nothing."
    text = job_file([(id, definition)], heading=heading)
    with _kept(id) as file:
        return _edit_until_right(id, definition, text, file, apply)


def _edit_until_right(
    id: str, definition: Json, text: str, file: Path, apply: Callable[[Json], Json]
) -> Json | None:
    opened = text
    refused: Invalid | None = None
    while True:
        file.write_text(opened, encoding="utf-8")
        _open_editor(file)
        written = file.read_text(encoding="utf-8")
        if not _without_comments(written):
            return None
        if written == opened:
            if refused is not None:
                raise refused
            return None
        try:
            table = parse_table(id, written, "what you wrote")
            if table == definition:
                return None
            return apply(table)
        except Invalid as bad:
            refused = bad
            opened = _with_faults(written, bad)


@contextlib.contextmanager
def _kept(id: str) -> Iterator[Path]:
    """A private file for the text; it is gone at the end, unless the daemon refused what is in it."""
    place = Path(tempfile.mkdtemp(prefix="schedctl-edit-"))
    keep = False
    try:
        yield place / f"{id}.toml"
    except EditorFailed:
        raise
    except SchedulerError:
        keep = True
        warn(escape(f"what you wrote is kept in {place / f'{id}.toml'}"))
        raise
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _open_editor(file: Path) -> None:
    words = _editor()
    try:
        done = subprocess.run([*words, str(file)], check=False)  # noqa: S603  the user's own editor
    except OSError as bad:
        raise EditorFailed(
            f"the editor {words[0]} cannot be started: {bad.strerror}", hint="set EDITOR"
        ) from bad
    if done.returncode != 0:
        raise EditorFailed(f"the editor ended with {done.returncode}: nothing was changed")


def _editor() -> Sequence[str]:
    """The words of the editor's command.

    Raises:
        EditorFailed: there is none.
    """
    for name in ("VISUAL", "EDITOR"):
        if words := shlex.split(os.environ.get(name, "")):
            return words
    found = next((editor for editor in _EDITORS if shutil.which(editor)), None)
    if found is None:
        raise EditorFailed("there is no editor", hint="set EDITOR, or give the table with --file FILE")
    return [found]


def _with_faults(text: str, error: Invalid) -> str:
    """The text with what is wrong on top, in place of what was wrong before."""
    faults = [str(fault) for fault in error.faults] or [error.message]
    told = [f"{_FAULT}{escape(fault)}" for fault in faults]
    kept = [line for line in text.splitlines() if not line.startswith(_FAULT.rstrip())]
    return "\n".join([*told, *kept]) + "\n"


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).strip()
