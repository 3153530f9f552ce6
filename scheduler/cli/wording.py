"""How values are said to a person: times, durations, states, and text that may hold anything.

Every time is shown in the local zone with its offset, and relative to now. Text that came from outside
(names, messages, output of jobs) passes `escape` before it reaches a terminal, so that no value can move
the cursor, recolour the screen or reorder a line. Nothing here prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from scheduler.clock import SECOND, Micros, SystemClock, from_micros, to_micros

Json: TypeAlias = dict[str, Any]
"""An object of the control API. A field may be missing: the daemon may be of another version."""

JOB_GLYPHS: Final[Mapping[str, str]] = {
    "active": "●",
    "paused": "‖",
    "completed": "✓",
    "failed": "✗",
    "disabled": "○",
    "broken": "!",
}
RUN_GLYPHS: Final[Mapping[str, str]] = {
    "queued": "◌",
    "running": "▶",
    "recovering": "↻",
    "waiting": "…",
    "held": "‖",
    "succeeded": "✓",
    "partial": "◐",
    "failed": "✗",
    "cancelled": "⊘",
    "crashed": "‼",
    "interrupted": "↯",
    "skipped": "-",
}
STYLES: Final[Mapping[str, str]] = {
    "active": "green",
    "paused": "yellow",
    "completed": "blue",
    "failed": "red",
    "disabled": "dim",
    "broken": "bold red",
    "queued": "cyan",
    "running": "green",
    "recovering": "magenta",
    "waiting": "cyan",
    "held": "yellow",
    "succeeded": "green",
    "partial": "yellow",
    "cancelled": "yellow",
    "crashed": "bold red",
    "interrupted": "magenta",
    "skipped": "dim",
}
"""Colour of a state, in the words of rich; it never says more than the text beside it."""

# C0 and C1 controls, DEL, line separators, marks that reorder text, and halves of a broken code point.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# The same for running text, where lines and tabs are what they say.
_UNSAFE_IN_LINES: Final = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_NAMED: Final[Mapping[str, str]] = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def escape(value: object) -> str:
    r"""The value as one line of text that cannot command a terminal; a control character reads `\x07`."""
    return _UNSAFE.sub(_spell, str(value))


def escape_lines(text: str) -> str:
    r"""The same for running text: line ends and tabs stay, also the `\r` that stands before a line end."""
    return _UNSAFE_IN_LINES.sub(_spell, text.replace("\r\n", "\n"))


def now() -> Micros:
    """The wall clock of this machine, which is also the daemon's."""
    return SystemClock().now()


def instant(value: object) -> Micros | None:
    """The RFC 3339 time of the API as UTC microseconds; None where it is no time."""
    if not isinstance(value, str):
        return None
    try:
        return to_micros(datetime.fromisoformat(value))
    except ValueError:
        return None


def moment(value: object) -> str:
    """`2026-10-01 02:30:00+02:00 (in 4 min)` in the local zone, or `-` for no time."""
    at = instant(value)
    return "-" if at is None else f"{local(at)} ({relative(at)})"


def local(at: Micros) -> str:
    """The instant in the local zone with its offset, to the second.

    Milliseconds are shown where they are exact, as in a fire time of `every = "500ms"`; a time that was
    measured never is.
    """
    shown = from_micros(at).astimezone()
    return shown.isoformat(sep=" ", timespec=precision(at))


def precision(at: Micros) -> str:
    """`seconds`, or `milliseconds` for an instant that was set to one."""
    return "milliseconds" if at % SECOND and at % 1_000 == 0 else "seconds"


def brief(at: Micros) -> str:
    """The instant in the local zone as short as its day allows: without the date if that is today."""
    shown, today = from_micros(at).astimezone(), from_micros(now()).astimezone()
    if shown.date() == today.date():
        return shown.timetz().isoformat(timespec="seconds")
    return shown.isoformat(sep=" ", timespec="minutes")


def relative(at: Micros) -> str:
    """`in 4 min`, `3 h 20 min ago`, `now`."""
    ahead = at - now()
    if abs(ahead) < SECOND:
        return "now"
    return f"in {duration(ahead)}" if ahead > 0 else f"{duration(-ahead)} ago"


def duration(length: Micros) -> str:
    """The length in the one or two units that matter: `12 s`, `4 min`, `3 h 20 min`, `5 d 2 h`, `90 d`."""
    total = max(0, length) // SECOND
    if total == 0 and length > 0:
        return f"{length // 1_000} ms"
    if total < 60:
        return f"{total} s"
    if total < 3_600:
        return f"{total // 60} min"
    if total < 86_400:
        return _two(total // 3_600, "h", total % 3_600 // 60, "min")
    if total < 7 * 86_400:
        return _two(total // 86_400, "d", total % 86_400 // 3_600, "h")
    return f"{total // 86_400} d"


def job_state(job: Json) -> str:
    """The one word for a job: its status, or why an active one does not fire (`broken`, `disabled`)."""
    status = str(job.get("status", "?"))
    if status == "active" and job.get("problem"):
        return "broken"
    if status == "active" and job.get("enabled") is False:
        return "disabled"
    return status


def pause_text(pause: Json) -> str:
    """Who paused, why, since when, until when."""
    said = [f"by {pause.get('by', '?')}", f"since {moment(pause.get('since'))}"]
    if pause.get("until"):
        said.append(f"until {moment(pause['until'])}")
    said.append(f"mode {pause.get('mode', '?')}, reason {pause.get('reason', '?')}")
    text = ", ".join(said)
    return escape(f"{text}: {pause['note']}" if pause.get("note") else text)


def schedule(trigger: object) -> str:
    """`cron 30 2 * * * Europe/Berlin`, `every 15 min`: the kind of the trigger and what it says."""
    if not isinstance(trigger, dict):
        return "-"
    kind = str(trigger.get("kind", "?"))
    said = [value for key, value in trigger.items() if key != "kind" and value is not None]
    return escape(
        " ".join([kind, *(length_text(value) if _is_number(value) else str(value) for value in said)])
    )


def progress(run: Json) -> str:
    """`3/10, 1 failed: message`, or nothing where the work tells no progress."""
    told = run.get("progress")
    if not isinstance(told, dict):
        return ""
    done, total = told.get("done"), told.get("total")
    parts = [] if done is None else [f"{done}/{total}" if total is not None else f"{done} done"]
    parts += [f"{told[key]} {key}" for key in ("failed", "unknown") if told.get(key)]
    text = ", ".join(parts)
    message = told.get("message")
    if message:
        text = f"{text}: {message}" if text else str(message)
    return escape(text)


def outcome(run: Json) -> str:
    """What became of a run in a few words: reason, exit code or signal, message."""
    said = [str(run[key]) for key in ("reason",) if run.get(key)]
    is_told = str(run.get("message") or "").endswith(f"code {run.get('exit_code')}")
    if run.get("exit_code") not in (None, 0) and not is_told:
        said.append(f"exit {run['exit_code']}")
    if run.get("signal") is not None:
        said.append(f"signal {run['signal']}")
    count = run.get("count")
    if isinstance(count, int) and count > 1:
        said.append(f"{count} fire times")
    text = ", ".join(said)
    if run.get("message"):
        text = f"{text}: {run['message']}" if text else str(run["message"])
    return escape(text)


def elapsed(run: Json) -> Micros | None:
    """How long the run has taken, up to now where it has not ended; None if it never started."""
    started = instant(run.get("started_at"))
    if started is None:
        return None
    finished = instant(run.get("finished_at"))
    return max(0, (now() if finished is None else finished) - started)


def _spell(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def length_text(amount: float) -> str:
    """A number of seconds with nothing rounded away: `15 min`, `90.5 s`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if amount >= size and amount % size == 0:
            return f"{amount / size:g} {unit}"
    return f"{amount:g} s"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big} {big_unit} {small} {small_unit}" if small else f"{big} {big_unit}"
