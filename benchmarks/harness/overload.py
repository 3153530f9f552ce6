"""Twice the load that can be borne: what is stored meanwhile, what is lost, how soon it is over."""

from __future__ import annotations

import math
import time
from array import array
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.harness.account import SECOND, Account, settle
from benchmarks.harness.contender import Found
from benchmarks.harness.daemon import Daemon, history, site
from benchmarks.harness.figures import ratio, share_below
from benchmarks.harness.ours import ATTEMPTS, Schedulerd, noted
from benchmarks.harness.processes import Unmeasured, sleep_until, workspace
from benchmarks.harness.section import Section, attempt
from benchmarks.harness.table import Verdict, at_least, at_most, number, table, times

LASTS = 8
WATCHED = 12
"""Seconds: of the overload, and after it."""

ON_TIME = 1.0
JOB = '[jobs.{id}]\nevery = "1s"\n{end}python = "bench_handlers:note"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """What was seen: outcomes stored per second, seconds until p99 was below one second, the account."""

    jobs: int
    rate: float
    recovered: float
    account: Account


def measure(ours: Schedulerd, peak: float) -> Overload | str:
    """Twice as many jobs as at the peak, of which most end; a quarter of the peak goes on."""
    jobs, staying = 2 * round(peak), max(20, round(peak / 4))
    return attempt(f"overload, {jobs:,} a second", lambda: _measured(ours, jobs, staying))


def section(peak: float, found: Overload | str) -> Section:
    """The table, and the targets."""
    title = "Twice the capacity"
    target = "1. at twice the capacity ≥ 0.8 × peak"
    if isinstance(found, str):
        verdict = Verdict(target=target, measured=str(found), met=None)
        return Section(title=title, text=f"Not measured: {found}", verdicts=(verdict,))
    account, share = found.account, ratio(found.rate, peak)
    text = table(
        ["jobs due each s", "outcomes stored/s", "of the peak", "fires with a run", "explained by a row",
         "lost", "doubled", "p99 below 1 s again after, s"],
        [[number(found.jobs), number(found.rate), times(share), number(account.ran),
          number(account.explained), number(account.lost), number(account.doubled),
          _recovery(found.recovered)]],
    )  # fmt: skip
    wrong = account.lost + account.doubled
    verdicts = (
        at_least(target, share, 0.8, times(share)),
        at_most(
            "1. nothing lost or doubled meanwhile",
            wrong,
            0,
            f"{account.lost} lost, {account.doubled} doubled",
        ),
        at_most(
            "1. p99 < 1 s within 10 s after it", found.recovered, 10, f"after {_recovery(found.recovered)} s"
        ),
    )
    return Section(title=title, text=text, verdicts=verdicts)


def _recovery(seconds: float) -> str:
    return f"more than {WATCHED}" if math.isinf(seconds) else number(seconds)


def _measured(ours: Schedulerd, jobs: int, staying: int) -> Overload:
    for _ in range(ATTEMPTS):
        with workspace(ours.root) as folder, site(folder / "d") as place:
            end = math.ceil(time.time() + ours.pace.expected(jobs) + LASTS)
            until = f"end_at = {datetime.fromtimestamp(end, UTC).isoformat()}\n"
            place.write_jobs("stay", "".join(JOB.format(id=f"s{n}", end="") for n in range(staying)))
            place.write_jobs("go", "".join(JOB.format(id=f"g{n}", end=until) for n in range(jobs - staying)))
            with ours.started(place, jobs) as daemon:
                if end - time.time() < LASTS / 2:
                    continue
                rate = _stored_until(daemon, end)
                sleep_until(end + WATCHED)
                fires = _noted(daemon, end)
            rows, next_fires = history(daemon)
            gone = {f"g{n}": (end + 1) * SECOND for n in range(jobs - staying)}
            account = settle(rows, {**gone, **next_fires})
            return Overload(jobs=jobs, rate=rate, recovered=recovery(fires, end, staying), account=account)
    raise Unmeasured("the daemon was not ready early enough")


def _stored_until(daemon: Daemon, end: float) -> float:
    """Outcomes per second from a second after the start to the end of the overload."""
    sleep_until(math.ceil(time.time()) + 1)
    began, stored = time.time(), daemon.stored()
    sleep_until(end)
    stored = daemon.stored() - stored
    return stored / (time.time() - began)


def _noted(daemon: Daemon, since: float) -> list[tuple[float, float]]:
    """Each start of a fire that was due since then: when it was due, how late it was."""
    nothing = Found(started=0, outcomes=0, seconds=1.0, cpu=0.0)
    noted(daemon, nothing, since=since, until=math.inf)
    pairs = array("d", (daemon.place.folder / "starts").read_bytes())
    return [(due, at - due) for due, at in zip(pairs[::2], pairs[1::2], strict=True) if due > since + 0.5]


def recovery(fires: list[tuple[float, float]], end: float, expected: int) -> float:
    """Seconds after `end` from which on all jobs have started each second, 99 of 100 on time."""
    by_second: dict[int, list[float]] = {}
    for due, late in fires:
        by_second.setdefault(round(due - end), []).append(late)
    recovered = math.inf
    for second in range(WATCHED - 1, 0, -1):
        of_second = by_second.get(second, [])
        if len(of_second) < 0.9 * expected or share_below(of_second, 0.99) >= ON_TIME:
            break
        recovered = second
    return recovered
