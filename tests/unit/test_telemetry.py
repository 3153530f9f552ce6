from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from scheduler.clock import Alarm, Micros
from scheduler.errors import ConfigError
from scheduler.logline import MASK
from scheduler.telemetry import (
    LIBRARY_LOGGED,
    Event,
    LogFormat,
    Telemetry,
    configure,
    get_logger,
    mask,
)

NOON: Micros = 1_700_000_000_000_000

EVENTS = """
daemon_started all_paused all_resumed pause_expired run_queued item_started budget_reached daemon_ready
daemon_draining daemon_stopped config_reloaded config_rejected job_added job_changed job_removed job_paused
job_resumed job_completed job_failed fire_skipped run_claimed run_started run_progressed run_succeeded
run_partial run_failed run_cancelled run_crashed run_interrupted run_retrying run_held run_fenced
run_recovering run_recovered run_resumed run_requeued run_stuck loop_blocked job_broken lease_lost item_done
item_failed item_unknown pause_preserved clock_stepped store_unavailable store_recovered
store_checked store_log_grew request_denied
job_overdue alert_undelivered
"""


class StoppedClock:
    def now(self) -> Micros:
        return NOON

    def monotonic(self) -> Micros:
        return 0

    async def sleep(self, duration: Micros) -> None:
        raise AssertionError("telemetry does not sleep")

    def call_later(self, duration: Micros, call: Callable[[], object]) -> Alarm:
        raise AssertionError("telemetry sets no alarm")


class Stream(io.StringIO):
    """A stream in memory, and what it got so far."""

    telemetry: Telemetry

    @property
    def lines(self) -> list[str]:
        self.telemetry.flush()
        return self.getvalue().splitlines()

    @property
    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def configured() -> Iterator[Callable[..., Telemetry]]:
    open_ones: list[Telemetry] = []

    def configure_for_test(format: LogFormat, level: str, stream: TextIO) -> Telemetry:
        open_ones.append(configure(format, level, stream, clock=StoppedClock()))
        return open_ones[-1]

    yield configure_for_test
    for telemetry in open_ones:
        telemetry.close()
    structlog.reset_defaults()


@pytest.fixture
def stream(configured: Callable[..., Telemetry]) -> Stream:
    stream = Stream()
    stream.telemetry = configured("auto", "info", stream)
    return stream


def test_the_list_of_events_is_closed() -> None:
    """The names are those that operators and their tools know, no more and no fewer."""
    assert sorted(Event) == sorted(EVENTS.split())


def test_a_line_opens_with_time_level_and_event(stream: Stream) -> None:
    """A JSON line has `timestamp level event` first, then the ids, then the rest."""
    log = get_logger(attempt=1, run_id="r1").bind(job="narrate")

    log.warning(Event.RUN_FAILED, reason="timeout", claim=2, fire_time=NOON)

    (line,) = stream.lines
    assert line == (
        '{"timestamp":"2023-11-14T22:13:20.000000+00:00","level":"warning","event":"run_failed","job":"narrate",'
        '"run_id":"r1","attempt":1,"claim":2,"fire_time":"2023-11-14T22:13:20.000000+00:00","reason":"timeout"}'
    )


def test_the_timestamp_is_utc_with_microseconds(configured: Callable[..., Telemetry]) -> None:
    """The time of a line is RFC 3339 in UTC, of constant width, whatever the zone of the machine."""
    stream = Stream()
    stream.telemetry = configure(stream=stream)

    get_logger().info(Event.DAEMON_STARTED)

    (event,) = stream.events
    stamp = str(event["timestamp"])
    assert len(stamp) == len("2023-11-14T22:13:20.000000+00:00")
    assert stamp.endswith("+00:00")
    stream.telemetry.close()


def test_instants_are_told_as_times(stream: Stream) -> None:
    """Microseconds under `fire_time` and `*_at` become RFC 3339; other numbers stay numbers."""
    get_logger().info(Event.RUN_QUEUED, ready_at=NOON, ended_at=None, odd_at=10**30, count=NOON)

    (event,) = stream.events
    assert event["ready_at"] == "2023-11-14T22:13:20.000000+00:00"
    assert (event["ended_at"], event["odd_at"], event["count"]) == (None, str(10**30), NOON)


def test_events_below_the_level_are_not_told(configured: Callable[..., Telemetry]) -> None:
    """The level is the least that is told."""
    stream = Stream()
    stream.telemetry = configured("json", "warning", stream)
    log = get_logger()

    log.debug(Event.RUN_PROGRESSED)
    log.info(Event.RUN_STARTED)
    log.warning(Event.RUN_STUCK)
    log.error(Event.STORE_UNAVAILABLE)

    assert [event["event"] for event in stream.events] == ["run_stuck", "store_unavailable"]


def test_other_code_logs_through_structlog_as_it_is_used_to(stream: Stream) -> None:
    """Arguments are put into the text, and other ways to name a level are heard."""
    log = structlog.get_logger().bind(part="a")

    log.info("took %d s", 3)
    log.critical("slow")
    log.log(logging.ERROR, "gone", code=4)
    log.msg("%(what)s", {"what": "done"})

    told = [(event["level"], event["event"], event["part"]) for event in stream.events]
    expected = [("info", "took 3 s"), ("critical", "slow"), ("error", "gone"), ("info", "done")]
    assert told == [(level, text, "a") for level, text in expected]


def test_a_test_may_capture_what_is_logged(stream: Stream) -> None:
    """The capture of structlog sees events of loggers that exist already, with level and fields."""
    log = get_logger(job="a").bind(attempt=1)

    with structlog.testing.capture_logs() as captured:
        log.info(Event.RUN_STARTED, claim=2)
    log.info(Event.RUN_SUCCEEDED)

    assert captured == [{"event": "run_started", "log_level": "info", "job": "a", "attempt": 1, "claim": 2}]
    assert [event["event"] for event in stream.events] == ["run_succeeded"]


def test_a_later_set_up_reaches_loggers_that_exist(
    stream: Stream, configured: Callable[..., Telemetry]
) -> None:
    """What `get_logger` gave follows whatever was configured last."""
    log = get_logger(job="a")
    log.debug(Event.RUN_STARTED)
    later = Stream()
    later.telemetry = configured("json", "debug", later)

    log.debug(Event.RUN_STARTED)

    assert (stream.events, len(later.events)) == ([], 1)


def test_an_exception_is_a_field_of_its_line(stream: Stream) -> None:
    """A traceback does not break the line that tells it."""
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        get_logger().error(Event.JOB_BROKEN, exc_info=error)

    (event,) = stream.events
    assert str(event["exception"]).startswith("Traceback")
    assert str(event["exception"]).endswith("ValueError: two\nlines")
    assert "exc_info" not in event


def test_values_cannot_forge_a_line_or_a_field(stream: Stream) -> None:
    """A value with line ends and quotes is one value of one line; reserved fields are not taken over."""
    get_logger().info(
        Event.REQUEST_DENIED, message='x"}\n{"event":"daemon_stopped"}', level="forged", timestamp="forged"
    )

    (event,) = stream.events
    assert (event["event"], event["level"]) == ("request_denied", "info")
    assert event["timestamp"] == "2023-11-14T22:13:20.000000+00:00"
    assert event["message"] == 'x"}\n{"event":"daemon_stopped"}'


def test_an_event_name_from_outside_cannot_forge_a_line(stream: Stream) -> None:
    """User code in our process that logs through structlog gets one escaped, bounded line as well."""
    structlog.get_logger().info("x\n" * 10_000)

    (event,) = stream.events
    assert len(str(event["event"])) < 1100


def test_secrets_are_masked_in_every_event(stream: Stream) -> None:
    """A value named to `mask` is in no line from then on, not even in a traceback."""
    mask(["s3cr3t-of-test"])

    get_logger(token="s3cr3t-of-test").error(  # noqa: S106 -- what is to be masked
        Event.RUN_FAILED, message="bad s3cr3t-of-test", exc_info=ValueError("s3cr3t-of-test")
    )

    (line,) = stream.lines
    assert "s3cr3t" not in line
    assert line.count(MASK) == 3


def test_an_event_that_cannot_be_rendered_still_makes_a_line(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a line cannot be made (a bug of ours), the event is told without its fields."""

    def broken(*_: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setattr(structlog.processors, "format_exc_info", broken)
        get_logger(job="a").error(Event.RUN_FAILED, exc_info=ValueError("x"))

    (event,) = stream.events
    assert (event["event"], event["unrenderable"]) == ("run_failed", "RuntimeError")


def test_warnings_of_libraries_come_through_our_lines(
    configured: Callable[..., Telemetry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a library logs at warning and above is one JSON line, also when its format does not fit."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest raise where formats do not fit
    stream = Stream()
    stream.telemetry = configured("json", "info", stream)
    library = logging.getLogger("some.library")

    library.info("not told")
    library.warning("took %s\nseconds", 3)
    library.error("%d %d", "x")
    library.critical("gone", exc_info=ValueError("why"))

    told = [(event["level"], event["event"], event["logger"], event["message"]) for event in stream.events]
    assert told == [
        ("warning", LIBRARY_LOGGED, "some.library", "took 3\nseconds"),
        ("error", LIBRARY_LOGGED, "some.library", "%d %d"),
        ("error", LIBRARY_LOGGED, "some.library", "gone"),
    ]
    assert "ValueError: why" in str(stream.events[-1]["exception"])


def test_a_closed_telemetry_lets_the_libraries_go(stream: Stream) -> None:
    """After `close` an event raises nothing and is counted as lost; stdlib logging is as it was before."""
    stream.telemetry.close()

    logging.getLogger("some.library").warning("to whomever")
    get_logger().info(Event.DAEMON_STOPPED)

    assert stream.getvalue() == ""
    assert stream.telemetry.lines_lost == 1


def test_a_reader_that_went_away_is_no_error() -> None:
    """A broken pipe on stdout ends nothing: the lines are lost and counted (I14)."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        telemetry = configure("json", "info", stream)

        get_logger().info(Event.DAEMON_STARTED)
        telemetry.close()

    assert telemetry.lines_lost == 1
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("format", "level", "words"),
    [("xml", "info", "auto, json or console"), ("json", "loud", "debug, info, warning, error, critical")],
)
def test_a_wrong_setting_names_the_right_ones(format: LogFormat, level: str, words: str) -> None:
    """An unknown format or level is refused with the list of those that exist."""
    with pytest.raises(ConfigError, match=words):
        configure(format, level, io.StringIO())


EMIT = """
from scheduler.telemetry import Event, configure, get_logger
telemetry = configure({format!r})
get_logger(job="a").info(Event.RUN_STARTED)
telemetry.close()
"""


def on_a_terminal(format: str, **environ: str) -> bytes:
    """What a person at a terminal sees of one event."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "", "TERM": "xterm", **environ}
    try:
        subprocess.run(
            [sys.executable, "-c", EMIT.format(format=format)], stdout=terminal, env=environment, check=True
        )
        return os.read(controller, 10_000)
    finally:
        os.close(controller)
        os.close(terminal)


def test_a_terminal_gets_coloured_text() -> None:
    """With format `auto` a person sees coloured words, not JSON."""
    seen = on_a_terminal("auto")

    assert b"\x1b[" in seen
    assert b"{" not in seen


def test_a_terminal_without_colour_gets_plain_text() -> None:
    """NO_COLOR and a dumb terminal are respected."""
    assert b"\x1b" not in on_a_terminal("auto", NO_COLOR="1")
    assert b"\x1b" not in on_a_terminal("auto", TERM="dumb")


def test_json_on_wish_also_on_a_terminal() -> None:
    """With format `json` a terminal gets JSON as well."""
    assert json.loads(on_a_terminal("json"))["event"] == "run_started"


def test_a_pipe_gets_json() -> None:
    """With format `auto` whatever is no terminal gets JSON; `console` there is text without colours."""
    json_out = subprocess.run(
        [sys.executable, "-c", EMIT.format(format="auto")], capture_output=True, check=True
    ).stdout
    text_out = subprocess.run(
        [sys.executable, "-c", EMIT.format(format="console")], capture_output=True, check=True
    ).stdout

    assert json.loads(json_out)["event"] == "run_started"
    assert text_out.endswith(b" info     run_started job=a\n")


@pytest.fixture
def journalled(
    configured: Callable[..., Telemetry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """The lines of four events, written to a file that JOURNAL_STREAM may name."""

    def write(stream_id: str) -> list[str]:
        with (tmp_path / "log").open("w") as stream:
            status = os.fstat(stream.fileno())
            name = stream_id.format(dev=status.st_dev, ino=status.st_ino, other=status.st_ino + 1)
            monkeypatch.setenv("JOURNAL_STREAM", name)
            monkeypatch.setattr("scheduler.journal.ADDRESS", tmp_path / "none")  # lines, not entries
            telemetry = configured("json", "debug", stream)
            log = get_logger()
            log.debug(Event.RUN_PROGRESSED)
            log.info(Event.RUN_STARTED)
            log.warning(Event.RUN_STUCK)
            log.error(Event.RUN_FAILED, exc_info=ValueError("x"))
            telemetry.close()
        return (tmp_path / "log").read_text().splitlines()

    return write


def test_lines_to_the_journal_bear_their_priority(journalled: Callable[[str], list[str]]) -> None:
    """When the stream is the journal's, each line opens with its syslog priority; the rest is JSON."""
    lines = journalled("{dev}:{ino}")

    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>"]
    assert all(json.loads(line[3:]) for line in lines)


@pytest.mark.parametrize("stream_id", ["{dev}:{other}", "", "nonsense"])
def test_other_streams_bear_no_priority(journalled: Callable[[str], list[str]], stream_id: str) -> None:
    """A stream that was redirected away from the journal gets plain JSON, though the variable is set."""
    assert all(json.loads(line) for line in journalled(stream_id))
