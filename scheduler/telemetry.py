"""What the daemon tells about itself: the closed list of events, and the set-up of structlog.

    telemetry = configure("auto", "info")
    log = get_logger(job="narrate", run_id=run_id)
    log.info(Event.RUN_STARTED, attempt=1)
    telemetry.close()

One event is one line on one stream: a JSON object (`timestamp level event`, the ids that apply, the rest),
or coloured text on a terminal. Under systemd it is an entry of the journal, with its ids as fields.
Promises: emitting never raises and never waits for the reader; lines that cannot be written are counted;
values cannot forge lines; what `mask` was told is in no line.
The text of a line is `scheduler.logline`, the writing `scheduler.logwriter`, the journal `scheduler.journal`,
numbers `scheduler.metrics`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from enum import unique
from functools import partial
from typing import Any, Final, Literal, Protocol, TextIO, TypeAlias, cast, get_args

import structlog

from scheduler.clock import Clock, Micros, SystemClock
from scheduler.errors import ConfigError
from scheduler.journal import JournalSink, journal_entry, leads_to_journal
from scheduler.logfields import EventName, JsonLines, Line, arranged, careful_line
from scheduler.logline import Masks, Plain, console_line, plain_fields
from scheduler.logwriter import LineWriter, Sink, sink_for

LogFormat: TypeAlias = Literal["auto", "json", "console"]


@unique
class Event(EventName):
    """Every event there is, in the past tense, one for each transition; each is logged at one place."""

    DAEMON_STARTED = "daemon_started"
    DAEMON_READY = "daemon_ready"
    DAEMON_DRAINING = "daemon_draining"
    DAEMON_STOPPED = "daemon_stopped"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_REJECTED = "config_rejected"

    ALL_PAUSED = "all_paused"
    ALL_RESUMED = "all_resumed"
    PAUSE_EXPIRED = "pause_expired"
    PAUSE_PRESERVED = "pause_preserved"
    """A write-back met a pause, which stays."""

    JOB_ADDED = "job_added"
    JOB_CHANGED = "job_changed"
    JOB_REMOVED = "job_removed"
    JOB_PAUSED = "job_paused"
    JOB_RESUMED = "job_resumed"
    JOB_COMPLETED = "job_completed"
    JOB_FAILED = "job_failed"
    JOB_BROKEN = "job_broken"
    """The definition cannot be run as it stands; the job is kept."""

    JOB_OVERDUE = "job_overdue"
    """A fire time has passed, and no run of the job has started."""
    ALERT_UNDELIVERED = "alert_undelivered"
    """A ping or hook was given up; the run it tells of is not touched by that."""

    FIRE_SKIPPED = "fire_skipped"
    RUN_QUEUED = "run_queued"
    RUN_CLAIMED = "run_claimed"
    RUN_STARTED = "run_started"
    RUN_PROGRESSED = "run_progressed"
    RUN_SUCCEEDED = "run_succeeded"
    RUN_PARTIAL = "run_partial"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    RUN_CRASHED = "run_crashed"
    RUN_INTERRUPTED = "run_interrupted"
    RUN_RETRYING = "run_retrying"
    RUN_HELD = "run_held"
    RUN_RESUMED = "run_resumed"
    RUN_REQUEUED = "run_requeued"
    RUN_FENCED = "run_fenced"
    """A write-back came with an old claim and changed nothing."""
    RUN_RECOVERING = "run_recovering"
    RUN_RECOVERED = "run_recovered"
    RUN_STUCK = "run_stuck"
    """Something of the run cannot be ended; it is tried again."""
    LEASE_LOST = "lease_lost"

    ITEM_STARTED = "item_started"
    ITEM_DONE = "item_done"
    ITEM_FAILED = "item_failed"
    ITEM_UNKNOWN = "item_unknown"
    BUDGET_REACHED = "budget_reached"

    CLOCK_STEPPED = "clock_stepped"
    LOOP_BLOCKED = "loop_blocked"
    STORE_UNAVAILABLE = "store_unavailable"
    STORE_RECOVERED = "store_recovered"
    STORE_CHECKED = "store_checked"
    """The daemon before was not stopped in order; its file was looked at, and nothing was found."""
    STORE_LOG_GREW = "store_log_grew"
    """Something reads the store for so long that its write-ahead log cannot be written back."""
    REQUEST_DENIED = "request_denied"


_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}

IDENTIFIER: Final = "schedulerd"
"""What `journalctl -t` finds us by."""

Render: TypeAlias = Callable[[Micros, str, object, Mapping[str, object]], Line]
"""The line for an event: when it was told, its level, its name and its fields."""

Frame: TypeAlias = Callable[[Line, int], bytes]
"""The bytes to write for a line and its priority as syslog(3) has it."""

LIBRARY_LOGGED: Final = "library_logged"
"""A warning of a library (stdlib `logging`) that passes through our lines: no transition, so no `Event`."""


class Logger(Protocol):
    """Emits events with the fields that were bound to it."""

    def bind(self, **fields: object) -> Logger:
        """A logger that adds these fields to every event."""
        ...

    def debug(self, event: Event, **fields: object) -> None:
        """Told to those who asked for details."""
        ...

    def info(self, event: Event, **fields: object) -> None:
        """Told as the normal course of things."""
        ...

    def warning(self, event: Event, **fields: object) -> None:
        """Told as something an operator may want to look at."""
        ...

    def error(self, event: Event, **fields: object) -> None:
        """Told as something an operator must look at; `exc_info=error` adds its traceback."""
        ...


def get_logger(**bound: object) -> Logger:
    """A logger with these fields; it follows whatever `configure` has set up when it is used."""
    return cast("Logger", structlog.get_logger(**bound))


_MASKS: Final = Masks()  # one per process, as secrets are: whoever reads an env_file need not know who logs


def mask(values: Iterable[str]) -> None:
    """The values appear in no line from now on; those below four characters are no secrets and stay."""
    _MASKS.add(values)


def concealed(text: str) -> str:
    """The text as it may be kept and shown: what `mask` was told is not in it."""
    return _MASKS.hide(text)


def configure(
    format: LogFormat = "auto",
    level: str = "info",
    stream: TextIO | None = None,
    *,
    clock: Clock | None = None,
) -> Telemetry:
    """Every logger of this process now writes to `stream` (default: stdout); warnings of libraries as well.

    Args:
        format: `auto` is text for a person where the stream is a terminal, else JSON.
        level: the least level that is told: debug, info, warning, error or critical.
        stream: where lines go. One that systemd connected to its journal is passed by: entries go there
            in the journal's own protocol, or, where that cannot be reached, as lines with their priority.
        clock: where timestamps come from.

    Raises:
        ConfigError: the format or level does not exist.
    """
    if format not in get_args(LogFormat):
        raise ConfigError(f"log format {format!r} does not exist: use auto, json or console")
    if level not in _PRIORITIES:
        raise ConfigError(f"log level {level!r} does not exist: use {', '.join(_PRIORITIES)}")
    stream = stream or sys.stdout
    sink, frame = _way_out(stream)
    telemetry = Telemetry(
        writer=LineWriter(sink),
        clock=clock or SystemClock(),
        render=_renderer(format, stream),
        frame=frame,
    )
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[telemetry.process],
        wrapper_class=_straight_logger(threshold),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,  # a later `configure` reaches loggers that exist already
    )
    telemetry.adopt_library_warnings(max(threshold, logging.WARNING))
    return telemetry


def _straight_logger(threshold: int) -> type[structlog.typing.BindableLogger]:
    """The filtering bound logger of structlog, whose five levels go straight to its processors.

    Nothing comes behind those: ours has written when it returns, and one of a test keeps what it gets.
    """
    filtering = structlog.make_filtering_bound_logger(threshold)
    numbers = logging.getLevelNamesMapping()
    levels = [level for level in _PRIORITIES if numbers[level.upper()] >= threshold]
    return type("StraightLogger", (filtering,), {level: _straight(level, filtering) for level in levels})


def _straight(level: str, filtering: type) -> Callable[..., None]:
    with_arguments = getattr(filtering, level)

    def tell(self: structlog.BoundLoggerBase, event: str, *args: object, **fields: object) -> None:
        if args:
            with_arguments(self, event, *args, **fields)
            return
        told: Any = {**self._context, **fields} if self._context else fields
        told["event"] = event
        try:
            for process in self._processors:
                told = process(self._logger, level, told)
        except structlog.DropEvent:
            return

    return tell


class Telemetry:
    """The way from an event to the stream. Made by `configure`, closed by whoever called that."""

    def __init__(
        self,
        *,
        writer: LineWriter,
        clock: Clock,
        render: Render,
        frame: Frame,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._render = render
        self._frame = frame
        self._library_handler: logging.Handler | None = None

    @property
    def lines_lost(self) -> int:
        """Lines since the start that did not reach the stream: reader gone or too slow, disk full."""
        return self._writer.lines_lost

    def flush(self, timeout: float = 1.0) -> bool:
        """What was emitted is written; False when `timeout` seconds did not suffice."""
        return self._writer.flush(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """What was emitted is written, as far as `timeout` seconds allow; later events count as lost."""
        if self._library_handler is not None:
            logging.getLogger().removeHandler(self._library_handler)
        self._writer.close(timeout)

    def process(
        self, _logger: object, level: str, fields: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """The event is on its way: the one structlog processor, behind which there is nothing left to do."""
        self.tell(level, fields.pop("event", ""), fields)
        return fields

    def tell(self, level: str, event: object, fields: Mapping[str, object]) -> None:
        """The event is on its way to the stream, or counted as lost."""
        try:
            line = self._line(level, event, fields)
        except Exception as error:  # noqa: BLE001 -- telling must never be what breaks the work
            line = self._line(level, event, {"unrenderable": type(error).__name__})
        self._writer.put(line)

    def adopt_library_warnings(self, threshold: int) -> None:
        """What libraries log at `threshold` and above comes out through our lines."""
        self._library_handler = _LibraryHandler(self.tell, threshold)
        logging.getLogger().addHandler(self._library_handler)

    def _line(self, level: str, event: object, fields: Mapping[str, object]) -> bytes:
        return self._frame(self._render(self._clock.now(), level, event, fields), _PRIORITIES[level])


def told(fields: Mapping[str, object]) -> dict[str, Plain]:
    """The fields of an event as its line shows them: bounded, instants as RFC 3339, secrets masked."""
    return plain_fields(arranged(fields), _MASKS)


class _LibraryHandler(logging.Handler):
    """Brings records of stdlib `logging` into our lines; what they say is a value like any other."""

    def __init__(self, tell: Callable[[str, object, Mapping[str, object]], None], threshold: int) -> None:
        super().__init__(threshold)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        level = "warning" if record.levelno < logging.ERROR else "error"
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 -- a library's format string does not fit its arguments
            message = str(record.msg)
        fields = {"logger": record.name, "message": message, "exc_info": record.exc_info}
        self._tell(level, LIBRARY_LOGGED, fields)


def _way_out(stream: TextIO) -> tuple[Sink, Frame]:
    """Where the bytes of events go, and what is put around each line on its way."""
    if not leads_to_journal(stream, os.environ.get("JOURNAL_STREAM", "")):
        return sink_for(stream), _bare
    journal = JournalSink.open()
    return (sink_for(stream), _with_priority) if journal is None else (journal, _as_entry)


def _bare(line: Line, _priority: int) -> bytes:
    return line[1]


def _with_priority(line: Line, priority: int) -> bytes:
    """Each line of text opens with the priority, as sd-daemon(3) has it."""
    prefix = b"<%d>" % priority
    return b"".join(prefix + part for part in line[1].splitlines(keepends=True))


def _as_entry(line: Line, priority: int) -> bytes:
    fields, text = line
    return journal_entry(fields, text, priority=priority, identifier=IDENTIFIER)


def _renderer(format: LogFormat, stream: TextIO) -> Render:
    terminal = _is_terminal(stream)
    if format == "console" or (format == "auto" and terminal):
        coloured = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return partial(careful_line, masks=_MASKS, text=partial(console_line, coloured=coloured))
    return JsonLines(_MASKS)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
