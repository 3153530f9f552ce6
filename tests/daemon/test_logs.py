"""Issue 2, point 12: one event is one line, a line is one JSON object, whatever jobs and operators write."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scheduler.telemetry import LIBRARY_LOGGED, Event
from tests.support.daemon import Daemon

_FORGED = (
    '\n{"timestamp":"2027-01-01T00:00:00Z","level":"info","event":"daemon_stopped"}\n'
    '\x1b[2J\u2028\x85\r"=,\x00'
)
_HANDLERS = """
FORGED = HERE
async def raises(run):
    run.progress(message=FORGED, done=2**62)
    run.log.info(FORGED, **{"value": FORGED})
    raise RuntimeError(FORGED + "\\ud800")
async def returns(run):
    return {FORGED: [FORGED, 10**400]}
async def surrogate(run):
    return "\\ud800"
async def huge(run):
    return "x" * 1_000_000
async def no_json(run):
    return {1, 2}
""".replace("HERE", repr(_FORGED))
_JOBS = r"""
[jobs.output]
manual = true
shell = '''
printf '%s' "$SCHEDULER_ARGS"
printf '\n{"event":"daemon_stopped"}\n\033[2J\r\377\000\342\050\241'
printf '{"message":"a\\nb","done":1e999}\n' >&$SCHEDULER_PROGRESS_FD
printf '{"message":"\\ud800","done":99999999999999999999}\n' >&$SCHEDULER_PROGRESS_FD
exit 3'''
[jobs.no-such-program]
manual = true
command = ["/nonexistent/program"]
[jobs.raises]
manual = true
python = "handlers:raises"
[jobs.returns]
manual = true
python = "handlers:returns"
[jobs.surrogate]
manual = true
python = "handlers:surrogate"
[jobs.huge]
manual = true
python = "handlers:huge"
[jobs.no-json]
manual = true
python = "handlers:no_json"
"""


def _well_formed(daemon: Daemon) -> None:
    """Every line of the present life is one object with the members of all events, and a known event."""
    known = {*Event, LIBRARY_LOGGED}
    raw = daemon._log_file().read_bytes()  # noqa: SLF001 - byte by byte is how a collector reads it
    for line in raw.split(b"\n")[:-1]:
        row = json.loads(line)
        assert list(row)[:3] == ["timestamp", "level", "event"], row
        assert row["event"] in known, row
    assert daemon.complaint() == ""


def test_hostile_values_do_not_break_or_forge_lines() -> None:
    """Arguments, outputs, results, errors and reasons with newlines, escapes and surrogates stay values."""
    with Daemon(_JOBS, handlers=_HANDLERS) as daemon:
        runs = {}
        for job in ("output", "raises", "returns", "surrogate", "huge", "no-json", "no-such-program"):
            args = {"text": _FORGED} if job == "output" else None
            body = {} if args is None else {"args": args}
            runs[job] = daemon.post(f"/v1/jobs/{job}/run", body)["id"]
        ends = {job: daemon.ended(run) for job, run in runs.items()}
        states = {job: (row["state"], row["reason"]) for job, row in ends.items()}
        assert states["output"] == ("failed", "exit_code")
        assert states["raises"] == ("failed", "exception")
        assert states["returns"] == ("succeeded", None), ends["returns"]
        assert states["no-such-program"] == ("failed", "spawn_failed")
        assert states["huge"][0] == states["no-json"][0] == "failed"
        daemon.post("/v1/jobs/output/pause", {"reason": _FORGED.replace("\x00", "")})
        _well_formed(daemon)
        assert daemon.events("daemon_stopped") == []
        assert daemon.stop() == 0
        assert len(daemon.events("daemon_stopped")) == 1
        _well_formed(daemon)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs/ok/run", {"args": {"text": "\ud800"}}),
        ("/v1/jobs/ok/run", {"args": {"\udfff": 2**80}}),
        ("/v1/jobs/ok/pause", {"reason": "\ud800"}),
        ("/v1/jobs/ok/pause", {"reason": "a\nb\x00c"}),
        ("/v1/jobs", {"id": "made", "manual": True, "command": ["echo", "\ud800"]}),
        ("/v1/jobs", {"id": "made", "manual": True, "command": ["true"], "description": "\ud800"}),
        ("/v1/jobs/ok\ud800".encode("utf-8", "surrogatepass").hex(), {}),
    ],
)
def test_request_that_no_database_could_keep_does_no_harm(path: str, body: object, daemon: Daemon) -> None:
    """I14: half a surrogate in a request is refused or replaced; the writer goes on, and so do the jobs."""
    reply = daemon.ask("POST", path if path.startswith("/") else f"/v1/jobs/%{path[:2]}/run", body)
    assert reply.status < 500, reply
    daemon.post("/v1/jobs/probe/run", {})
    daemon.until(lambda: daemon.job("probe")["live_runs"] == [])
    _well_formed(daemon)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    jobs = "".join(f'[jobs.{name}]\nmanual = true\ncommand = ["true"]\n' for name in ("ok", "probe"))
    with Daemon(jobs) as daemon:
        yield daemon
