"""One daemon that is tormented: its state directory, its jobs, what its operator was told, what befell it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil

from tests.support.daemon import Daemon

_LIBRARY: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
_WORK: Final = "echo $SCHEDULER_RUN_ID $SCHEDULER_CLAIM >> '{here}/ledger'"
_LEASE: Final = 3.0
_DISK: Final = "24m"

JOBS: Final = f"""
[jobs.second]
every = "1s"
catch_up = "all"
max_crashes = 0
shell = "{_WORK}"

[jobs.again]
every = "5s"
on_crash = "retry"
max_crashes = 1000000
shell = "{_WORK}; sleep 1"

[jobs.after]
delay = "2s"
max_crashes = 0
shell = "{_WORK}; sleep 0.5"

[jobs.long]
every = "20s"
max_crashes = 0
kill_grace = "500ms"
shell = "{_WORK}; trap '' TERM; sleep 9 & wait"

[jobs.beside]
every = "3s"
overlap = "allow"
max_running = 3
max_crashes = 0
shell = "{_WORK}; sleep 4"

[jobs.flood]
every = "30s"
max_crashes = 0
shell = "{_WORK}; head -c 3000000 /dev/zero | tr '\\\\0' x"

[jobs.narrate]
every = "25s"
python = "handlers:say"
max_crashes = 0
args = {{ ledger = "{{here}}/ledger" }}
[jobs.narrate.batch]
items = {[f"ch{number}" for number in range(40)]}
concurrency = 4

[jobs.told]
manual = true
description = "DESCRIPTION"
max_crashes = 0
shell = "{_WORK}"
"""
HANDLERS: Final = """
import asyncio
async def say(run, *, ledger):
    with open(ledger, "a") as file:
        file.write(f"{run.run_id} 0 {run.item}\\n")
    await asyncio.sleep(0.2)
    return {"said": run.item}
"""
PAUSABLE: Final = ("second", "again", "beside", "after")


@dataclass
class Site:
    """A daemon with its torments.

    Args:
        dice: what befalls it, and when.
        steps_clock: its wall clock is set now and then; needs libfaketime.
    """

    dice: Random
    steps_clock: bool
    befell: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    paused: dict[str, bool] = field(default_factory=dict)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    """Job, and from when to when (microseconds) its operator knew it paused."""
    succeeded: set[str] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)
    offset: float = 0.0
    disk: Path | None = None
    _since: dict[str, int] = field(default_factory=dict)
    _filler: Path | None = None
    _words: int = 0

    def __post_init__(self) -> None:
        self.daemon = Daemon(
            JOBS,
            handlers=HANDLERS,
            extra='[retention]\nruns_per_job = 1000000\nage = "3650d"',
            output_limit=100_000,
            drain_timeout="1s",
            fresh=True,
        )
        if self.steps_clock and _LIBRARY is not None:
            self._set_clock(0.0)
            self.daemon._env |= {  # noqa: SLF001 - its own options say so before there is a folder
                "LD_PRELOAD": str(_LIBRARY),
                "FAKETIME_TIMESTAMP_FILE": str(self.daemon.path("clock")),
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_CACHE_DURATION": "1",
            }
        self.disk = self._mount()
        if self.disk is not None:
            self.daemon.state = self.disk / "state"

    @staticmethod
    def can_step_clock() -> bool:
        """Libfaketime is installed."""
        return _LIBRARY is not None

    def _mount(self) -> Path | None:
        if os.geteuid() != 0:
            return None
        place = self.daemon.path("disk")
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "tmpfs", str(place)]
        return place if subprocess.run(command, check=False).returncode == 0 else None

    # --- torments ---
    def torments(self, *, deadly: bool) -> list[tuple[int, Callable[[], None]]]:
        """What may befall it now, with weights."""
        common = [
            (6, self.pause_or_resume),
            (3, self.reload),
            (2, self.reload_faulty),
            (3, self.freeze),
            (3, self.run_by_hand),
            (2, self.cancel_something),
        ]
        if self.disk is not None:
            common.append((2, self.fill_disk))
        if self.steps_clock and _LIBRARY is not None:
            common.append((3, self.step_clock))
        if deadly:
            common += [(6, self.kill), (2, self.kill_with_warden), (2, self.restart)]
        return common

    def torment(self, *, deadly: bool) -> None:
        """One thing befalls it."""
        weights, kinds = zip(*self.torments(deadly=deadly), strict=True)
        (kind,) = self.dice.choices(kinds, weights)
        self.befell[kind.__name__] += 1
        kind()
        self.pauses_hold()

    def kill(self) -> None:
        self.daemon.kill9()
        self.up()

    def kill_with_warden(self) -> None:
        self.daemon.kill9(and_warden=True)
        self.up()

    def restart(self) -> None:
        code = self.daemon.stop(patience=120)
        if code != 0:
            self.wrong.append(f"an orderly stop ended with {code}: {self.daemon.complaint()[-500:]}")
        self.up()

    def freeze(self) -> None:
        self.daemon.signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.2, 2.5 * _LEASE))
        self.daemon.signal(signal.SIGCONT)

    def pause_or_resume(self) -> None:
        job = self.dice.choice(PAUSABLE)
        verb = "resume" if self.paused.get(job) else "pause"
        asked_at = self.now()
        if self.asks("POST", f"/v1/jobs/{job}/{verb}"):
            self._knows(job, verb == "pause", asked_at)

    def _knows(self, job: str, paused: bool, asked_at: int) -> None:
        self.paused[job] = paused
        if paused:
            self._since[job] = self.now()
        elif job in self._since:
            self.spans.append((job, self._since.pop(job), asked_at))

    def reload(self) -> None:
        self._words += 1
        self.daemon.write(JOBS.replace("DESCRIPTION", f"words {self._words}"))
        if self.asks("POST", "/v1/reload"):
            told = self.daemon.job("told")["definition"]["description"]
            if told != f"words {self._words}":
                self.wrong.append(f"a reload was answered and not carried out: {told}")

    def reload_faulty(self) -> None:
        path = self.daemon.write('[jobs.second]\nevery = "1s"\n[jobs.bad\n', "bad.toml")
        self.daemon.signal(signal.SIGHUP)
        time.sleep(0.2)
        path.unlink()
        self.daemon.signal(signal.SIGHUP)

    def run_by_hand(self) -> None:
        self.asks("POST", f"/v1/jobs/{self.dice.choice(['told', 'narrate', 'long'])}/run")

    def cancel_something(self) -> None:
        for job in ("long", "beside", "narrate"):
            with suppress(OSError, http.client.HTTPException, AssertionError):
                for run in self.daemon.job(job)["live_runs"][:1]:
                    self.asks("POST", f"/v1/runs/{run['id']}/cancel")

    def fill_disk(self) -> None:
        assert self.disk is not None
        self._filler = self.disk / "filler"
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        time.sleep(self.dice.uniform(0.5, 8))
        if self.dice.random() < 0.3:
            self.daemon.kill9()
            self.up()
        self.free_disk()

    def free_disk(self) -> None:
        """There is room again."""
        if self._filler is not None:
            self._filler.unlink(missing_ok=True)
            self._filler = None

    def step_clock(self) -> None:
        self._set_clock(self.offset + self.dice.choice([-3700, -90, -5, -0.5, 0.5, 5, 90, 3700]))

    def _set_clock(self, offset: float) -> None:
        self.offset = offset
        fresh = self.daemon.path("clock.new")
        fresh.write_text(f"{offset:+.3f}\n")
        fresh.rename(self.daemon.path("clock"))

    def now(self) -> int:
        """Microseconds on the daemon's wall clock."""
        return round((time.time() + self.offset) * 1_000_000)

    # --- what is asked of it ---
    def asks(self, method: str, path: str) -> bool:
        """The verb was carried out, for all that the operator knows."""
        try:
            reply = self.daemon.ask(method, path, {})
        except (OSError, http.client.HTTPException):
            self._learn_pauses()
            return False
        if reply.status >= 500 and reply.status != 503:
            self.wrong.append(f"{method} {path}: {reply}")
        return reply.status in (200, 201, 202)

    def up(self) -> None:
        """A new process serves; a full disk may keep it from that until there is room."""
        self.keep_told()
        while True:
            try:
                self.daemon.start()
                break
            except AssertionError as error:
                if self._filler is None or "it did not start (exit 1)" not in str(error):
                    raise
                self.befell["refused to start on a full disk"] += 1
                self.free_disk()

    def _learn_pauses(self) -> None:
        """After an answer that was lost the operator looks."""
        with suppress(OSError, http.client.HTTPException, AssertionError):
            for job in PAUSABLE:
                self._knows(job, self.daemon.job(job)["status"] == "paused", self.now())

    def pauses_hold(self) -> None:
        """I4: each job is what its operator was told."""
        for job, paused in self.paused.items():
            with suppress(OSError, http.client.HTTPException, AssertionError):
                status = self.daemon.job(job)["status"]
                if (status == "paused") is not paused:
                    self.wrong.append(f"lost pause: {job} is {status}, told paused: {paused}")
                    self.paused[job] = status == "paused"

    def keep_told(self) -> None:
        """What the life that has ended told is remembered; its log goes."""
        with suppress(FileNotFoundError):
            for line in self.daemon.logs():
                self.events[line["event"]] += 1
                if line["event"] == "run_succeeded":
                    self.succeeded.add(line["run_id"])
        complaint = self.daemon.complaint() if self.daemon.process is not None else ""
        if "Traceback" in complaint:
            self.wrong.append(f"a traceback on stderr: {complaint[-800:]}")
        for path in self.daemon.folder.glob("out-*.jsonl"):
            path.unlink()
        self.daemon._log_file().touch()  # noqa: SLF001 - so that the present life has one

    def weight(self) -> dict[str, int]:
        """Descriptors, threads and memory (KiB) of the daemon now."""
        process = psutil.Process(self.daemon.pid)
        return {
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "memory": process.memory_info().rss // 1024,
        }

    @contextmanager
    def open(self) -> Iterator[Site]:
        """It serves; at the end nothing of it is left."""
        try:
            self.daemon.start()
            yield self
        finally:
            self.daemon.leave_nothing()
            if self.disk is not None:
                subprocess.run(["umount", "-l", str(self.disk)], check=False)
            self.daemon.close()


def is_quiet(site: Site) -> bool:
    """Nothing is under way."""
    jobs: list[dict[str, Any]] = site.daemon.get("/v1/jobs?limit=100")["items"]
    return not any(site.daemon.job(job["id"])["live_runs"] for job in jobs)
