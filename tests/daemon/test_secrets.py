"""Issue 5, point 7: what an `env_file` holds is seen by its job, and nowhere else (B54)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.daemon import Daemon

_SCHEDCTL = "from scheduler.cli.main import main; main()"
_SECRET = "correct-horse-battery"  # noqa: S105 - looked for, never used
_HANDLERS = """
import os
def raises(run):
    run.progress(message="token is " + os.environ["TOKEN"])
    raise RuntimeError("token is " + os.environ["TOKEN"])
"""
_JOBS = """
[jobs.works]
manual = true
env_file = "{here}/secret.env"
shell = "test -n \\"$TOKEN\\" && sleep 1"
[jobs.fails]
manual = true
env_file = "{here}/secret.env"
shell = "exit 3"
[jobs.unknown-program]
manual = true
env_file = "{here}/secret.env"
command = ["no-such-program"]
[jobs.too-large]
manual = true
env_file = "{here}/large.env"
command = ["true"]
[jobs.malformed]
manual = true
env_file = "{here}/malformed.env"
command = ["true"]
[jobs.raises]
manual = true
env_file = "{here}/secret.env"
python = "handlers:raises"
process = true
[jobs.cannot-import]
manual = true
env_file = "{here}/secret.env"
python = "importing:nothing"
process = true
[jobs.limits]
manual = true
shell = "ulimit -c"
"""
_PATHS = ("/v1/status", "/v1/jobs", "/v1/runs?limit=500", "/metrics", "/openapi.json")
_VERBS = (["list"], ["show", "raises"], ["runs"], ["status"], ["doctor"], ["why", "works"], ["next", "works"])


def _command_lines() -> str:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes() + (entry / "comm").read_bytes())
            except OSError:
                continue
    return b"\n".join(found).decode(errors="replace")


def _told_by_schedctl(daemon: Daemon, *words: str) -> str:
    argv = [sys.executable, "-c", _SCHEDCTL, *words, "--socket", str(daemon.socket)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout + done.stderr


def test_secrets_of_an_env_file_are_seen_nowhere() -> None:
    """Log, store, replies, schedctl and process titles of runs of every ending do not have the value."""
    daemon = Daemon(_JOBS, handlers=_HANDLERS)
    daemon.path("secret.env").write_text(f"TOKEN={_SECRET}\n")
    daemon.path("large.env").write_text(f"TOKEN={_SECRET * 8000}\n")
    daemon.path("malformed.env").write_text(f"TOKEN={_SECRET}\nOTHER '{_SECRET}\n")
    daemon.path("importing.py").write_text('import os\nraise RuntimeError(os.environ["TOKEN"])\n')
    with daemon:
        jobs = [job["id"] for job in daemon.get("/v1/jobs")["items"]]
        runs = {job: daemon.run(job) for job in jobs}
        daemon.run_when(runs["works"], lambda run: run["pid"])
        titles = _command_lines()
        ended = {job: daemon.ended(run) for job, run in runs.items()}
        replies = [json.dumps(daemon.ask("GET", path).body) for path in _PATHS]
        replies += [json.dumps(daemon.get(f"/v1/runs/{run}")) for run in runs.values()]
        replies += [json.dumps(daemon.get(f"/v1/jobs/{job}/why")) for job in jobs]
        said = [_told_by_schedctl(daemon, *words) for words in _VERBS]
        said += [_told_by_schedctl(daemon, *words, "--json") for words in _VERBS]
        assert ended["works"]["state"] == "succeeded"
        assert "token is ***" in ended["raises"]["message"]
        assert ended["raises"]["progress"]["message"] == "token is ***"
        assert daemon.stop() == 0
        logs = "\n".join(daemon.lines()) + daemon.complaint()
        stored = b"".join(file.read_bytes() for file in daemon.state.glob("schedulerd.db*"))

    assert "raises" in "".join(said)
    for told in (titles, logs, *replies, *said):
        assert _SECRET not in told
    assert _SECRET.encode() not in stored


def test_no_job_leaves_a_core_file() -> None:
    """The soft limit of core files is 0 for the daemon and what it starts; a job may raise it again."""
    with Daemon(_JOBS) as daemon:
        run = daemon.ended(daemon.run("limits"))
        output = daemon.ask("GET", f"/v1/runs/{run['id']}/output").body
        own = Path(f"/proc/{daemon.pid}/limits").read_text()

    assert output.strip() == "0"
    assert next(line.split()[4] for line in own.splitlines() if line.startswith("Max core")) == "0"
