from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from scheduler import journal
from scheduler.journal import FIELDS, JournalSink, journal_entry, leads_to_journal
from scheduler.telemetry import Event, configure, get_logger


@pytest.fixture
def journald(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What journald holds at its end of the socket."""
    monkeypatch.setattr(journal, "ADDRESS", tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(30)
        receiver.bind(str(journal.ADDRESS))
        yield receiver


def fields_of(datagram: bytes) -> dict[str, str]:
    """The entry as journald reads it."""
    found: dict[str, str] = {}
    while datagram:
        head, _, datagram = datagram.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", datagram[:8])
            value, datagram = datagram[8 : 8 + length], datagram[9 + length :]
        assert name.decode() not in found
        found[name.decode()] = value.decode()
    return found


def test_an_entry_bears_its_line_its_priority_and_its_ids() -> None:
    """The line is the message; job, run and event are fields beside it, in capitals."""
    line = b'{"event": "run_failed"}\n'

    entry = journal_entry(
        {"event": "run_failed", "job": "nightly", "run_id": "r-1", "claim": 3, "reason": None, "place": "x"},
        line,
        priority=4,
        identifier="schedulerd",
    )

    assert fields_of(entry) == {
        "MESSAGE": '{"event": "run_failed"}',
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "schedulerd",
        "EVENT": "run_failed",
        "JOB": "nightly",
        "RUN_ID": "r-1",
        "CLAIM": "3",
    }


def test_no_value_can_add_a_field() -> None:
    """A value with line ends is told by its length, so what looks like a field in it stays a value."""
    forged = "x\nPRIORITY=0\nJOB=other\n"

    fields = fields_of(
        journal_entry({"job": forged, "event": "e"}, b"a\nUNIT=b\n", priority=6, identifier="schedulerd")
    )

    assert fields["JOB"] == forged
    assert fields["MESSAGE"] == "a\nUNIT=b"
    assert fields["PRIORITY"] == "6"
    assert "UNIT" not in fields


def test_fields_are_names_that_journald_takes() -> None:
    """Every field is in letters that journald accepts, and none is one that it gives a meaning of its own."""
    reserved = {"MESSAGE", "MESSAGE_ID", "PRIORITY", "ERRNO", "UNIT", "USER_UNIT", "TID", "DOCUMENTATION"}

    for name in FIELDS:
        upper = name.upper()
        assert upper.replace("_", "").isalnum()
        assert upper[0].isalpha()
        assert upper not in reserved
        assert not upper.startswith(("SYSLOG_", "CODE_", "OBJECT_", "COREDUMP_"))


def test_events_reach_a_journal_that_holds_our_stream(
    journald: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where JOURNAL_STREAM names our stream, an event is an entry of the journal, not a line."""
    with (tmp_path / "stdout").open("w+") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        telemetry = configure("auto", "info", stream)
        try:
            get_logger(job="nightly").warning(Event.RUN_FAILED, run_id="r-1", message="exit code 3")
            fields = fields_of(journald.recv(65536))
        finally:
            telemetry.close()
            structlog.reset_defaults()
        stream.seek(0)
        assert stream.read() == ""

    assert fields["JOB"] == "nightly"
    assert fields["PRIORITY"] == "4"
    assert json.loads(fields["MESSAGE"])["message"] == "exit code 3"


def test_a_journal_that_goes_and_comes_back_gets_the_next_entry(tmp_path: Path) -> None:
    """Entries for a journal that is gone are counted as lost; those after its return arrive."""
    address = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
        first.bind(str(address))
        sink = JournalSink.open(address)
        assert sink is not None
    assert sink([b"EVENT=lost\n", b"EVENT=lost too\n"]) == 2
    address.unlink()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as second:
        second.bind(str(address))
        second.settimeout(30)
        assert sink([b"EVENT=kept\n", b"EVENT=kept too\n"]) == 0
        assert second.recv(100) == b"EVENT=kept\n"
        assert second.recv(100) == b"EVENT=kept too\n"


def test_where_no_journal_listens_there_is_no_way_to_it(tmp_path: Path) -> None:
    """Without a journal the caller is told so, and keeps its stream."""
    assert JournalSink.open(tmp_path / "nothing") is None


def test_only_the_very_stream_leads_to_the_journal(tmp_path: Path) -> None:
    """Device and inode decide; an empty or foreign JOURNAL_STREAM, or a closed stream, is no journal."""
    with (tmp_path / "out").open("w") as stream:
        status = os.fstat(stream.fileno())
        assert leads_to_journal(stream, f"{status.st_dev}:{status.st_ino}")
        assert not leads_to_journal(stream, f"{status.st_dev}:{status.st_ino + 1}")
        assert not leads_to_journal(stream, "")
    assert not leads_to_journal(stream, f"{status.st_dev}:{status.st_ino}")
