"""The marked points at which a daemon is killed, how to bring it there, and what is to be found afterwards.

`docs/faults.md` tells the same to people; a test holds the two against each other.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.support.faulty_daemon import FaultyDaemon
from tests.support.promises import read_ledger

_WORK: Final = "echo $SCHEDULER_RUN_ID $SCHEDULER_CLAIM >> '{here}/ledger'"
JOBS: Final = f"""
[jobs.once]
manual = true
max_crashes = 0
shell = "{_WORK}; echo said"

[jobs.again]
manual = true
max_crashes = 1000
on_crash = "retry"
shell = "{_WORK}; echo said"

[jobs.twice]
manual = true
max_crashes = 0
shell = "{_WORK}; [ $SCHEDULER_ATTEMPT = 2 ]"
retry = {{ attempts = 1, delay = "20ms" }}

[jobs.held]
manual = true
max_crashes = 0
shell = "{_WORK}; while [ ! -e '{{here}}/go' ]; do sleep 0.05; done"

[jobs.narrate]
manual = true
max_crashes = 0
python = "handlers:say"
args = {{ ledger = "{{here}}/ledger" }}
[jobs.narrate.batch]
items = ["a", "b", "c"]
concurrency = 1
"""
HANDLERS: Final = """
async def say(run, *, ledger):
    with open(ledger, "a") as file:
        file.write(f"{run.run_id} 0 {run.item}\\n")
    return {"said": run.item}
"""
TICKING: Final = f"""
[jobs.tick-NAME]
every = "1s"
catch_up = "all"
max_crashes = 0
shell = "{_WORK}"
"""

Act: TypeAlias = Callable[[FaultyDaemon, "Death"], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One marked point.

    Attributes:
        name: what the table in the documentation calls it.
        point: where in the code (`faulty_sqlite`, `faulty_daemon`).
        act: brings the daemon to the point and lets it die there; answers the run it is about.
        states: in which the run may be found; None stands for a run that is not on record.
        executions: how often its work may have begun, over all its claims.
        items: the state and the number of calls of each item, in order.
    """

    name: str
    point: str
    act: Act
    job: str = "once"
    states: Collection[str | None] = ()
    executions: Collection[int] = ()
    items: Collection[str] = ()


# --- how to get there; each ends with the death ---
def starts(daemon: FaultyDaemon, death: Death) -> str | None:
    """The job is started by hand."""
    before = {row["id"] for row in daemon.runs(death.job)}
    daemon.arm(death.point)
    daemon.ask_in_vain("POST", f"/v1/jobs/{death.job}/run", {"new": True} if death.items else {})
    _comes_back(daemon)
    new = [row["id"] for row in daemon.runs(death.job) if row["id"] not in before]
    assert len(new) <= 1, "one start made several runs"
    return str(new[0]) if new else None


def fires(daemon: FaultyDaemon, death: Death) -> None:
    """The schedule of a job starts it."""
    daemon.arm(death.point)
    daemon.write(TICKING.replace("NAME", death.name), f"{death.name}.toml")
    daemon.signal(signal.SIGHUP)
    _comes_back(daemon)
    job = f"tick-{death.name}"
    daemon.until(lambda: any(row["state"] == "succeeded" for row in daemon.runs(job)))
    daemon.post(f"/v1/jobs/{job}/pause")


def reloads(daemon: FaultyDaemon, death: Death) -> None:
    """The file of a job says something new."""
    daemon.write(JOBS.replace("[jobs.once]", f'[jobs.once]\ndescription = "{death.name}"'))
    daemon.arm(death.point)
    daemon.signal(signal.SIGHUP)
    _comes_back(daemon)
    assert daemon.job("once")["definition"]["description"] == death.name


def pauses(daemon: FaultyDaemon, death: Death) -> None:
    """An operator pauses a job; he learns whether he did when he looks."""
    daemon.arm(death.point)
    assert daemon.ask_in_vain("POST", "/v1/jobs/once/pause", {"reason": death.name}) is None
    _comes_back(daemon)
    pause = daemon.job("once")["pause"]
    assert (pause and pause["note"]) == (death.name if death.point.startswith("committed") else None)
    daemon.post("/v1/jobs/once/resume")


def resumes(daemon: FaultyDaemon, death: Death) -> None:
    """An operator resumes a job."""
    daemon.post("/v1/jobs/once/pause")
    daemon.arm(death.point)
    assert daemon.ask_in_vain("POST", "/v1/jobs/once/resume") is None
    _comes_back(daemon)
    is_active = daemon.job("once")["status"] == "active"
    assert is_active is death.point.startswith("committed")
    daemon.post("/v1/jobs/once/resume")


def cancels(daemon: FaultyDaemon, death: Death) -> str:
    """An operator cancels a run that is under way."""
    run = _at_work(daemon)
    daemon.arm(death.point)
    assert daemon.ask_in_vain("POST", f"/v1/runs/{run}/cancel") is None
    _comes_back(daemon)
    return run


def beats(daemon: FaultyDaemon, death: Death) -> str:
    """The heartbeat renews the lease of a run that is under way."""
    run = _at_work(daemon)
    daemon.arm(death.point)
    _comes_back(daemon)
    return run


def recovers(daemon: FaultyDaemon, death: Death) -> str:
    """A new daemon takes up what a dead one left, and dies over it."""
    run = _at_work(daemon)
    daemon.kill9()
    daemon.arm(death.point)
    daemon.launch()
    _comes_back(daemon)
    return run


def stops(daemon: FaultyDaemon, death: Death) -> str:
    """The daemon is told to stop, with a run under way, and does not come to the end of it."""
    run = _at_work(daemon)
    daemon.arm(death.point)
    daemon.signal(signal.SIGTERM)
    _comes_back(daemon)
    return run


def _at_work(daemon: FaultyDaemon) -> str:
    run = daemon.run("held")
    daemon.until(lambda: any(line.run == run for line in read_ledger(daemon.path("ledger"))))
    return run


def _comes_back(daemon: FaultyDaemon) -> None:
    """The daemon died, and so did the one after it where a test wants that; the last one serves."""
    assert daemon.exit_code() == -signal.SIGKILL, "it did not come to the point"
    if daemon.dies_next is not None:
        daemon.arm(daemon.dies_next)
        daemon.launch()
        daemon.until(lambda: daemon.has_ended or daemon.is_idle())
        if not daemon.has_ended:
            daemon.kill9()
    daemon.disarm()
    daemon.start()


# --- the points ---
def _pair(
    name: str,
    statement: str,
    act: Act,
    *,
    job: str = "once",
    before: tuple[Collection[str | None], Collection[int]] = ((), ()),
    after: tuple[Collection[str | None], Collection[int]] = ((), ()),
    items: tuple[Collection[str], Collection[str]] = ((), ()),
) -> list[Death]:
    """A point right before a commit and one right after it, when nobody has been told."""
    made = []
    for end, point, (states, executions), told in (
        ("uncommitted", "commit", before, items[0]),
        ("committed", "committed", after, items[1]),
    ):
        made.append(
            Death(
                name=f"{name}-{end}",
                point=f"{point}:{statement}",
                act=act,
                job=job,
                states=states,
                executions=executions,
                items=told,
            )
        )
    return made


_CRASHED: Final = ("crashed",)
_DONE: Final = ("succeeded",)
_ALL_DONE: Final = ("done 1", "done 1", "done 1")

DEATHS: Final[tuple[Death, ...]] = (
    *_pair("fire", "move_job", fires),
    *_pair("start", "insert_run", starts, before=((None,), (0,)), after=(_CRASHED, (0,))),
    *_pair("claim", "claim_run", starts, job="twice", before=(_DONE, (2,)), after=(_CRASHED, (1,))),
    Death(name="spawn-before", point="before:spawn", act=starts, states=_CRASHED, executions=(0,)),
    Death(name="spawn-after", point="after:spawn", act=starts, states=_CRASHED, executions=(0, 1)),
    Death(name="warden-untold", point="before:ward", act=starts, states=_CRASHED, executions=(0, 1)),
    Death(name="output-before", point="before:output", act=starts, states=_CRASHED, executions=(1,)),
    Death(name="output-after", point="after:output", act=starts, states=_CRASHED, executions=(1,)),
    *_pair("write-back", "finish_run", starts, before=(_CRASHED, (1,)), after=(_DONE, (1,))),
    *_pair("write-back-retry", "finish_run", starts, job="again", before=(_DONE, (2,)), after=(_DONE, (1,))),
    *_pair(
        "item-list",
        "complete_items",
        starts,
        job="narrate",
        before=(_DONE, (3,)),
        after=(_DONE, (3,)),
        items=(_ALL_DONE, _ALL_DONE),
    ),
    *_pair(
        "item-intent",
        "begin_items",
        starts,
        job="narrate",
        before=(_DONE, (3,)),
        after=(("partial",), (2,)),
        items=(_ALL_DONE, ("unknown 0", "done 1", "done 1")),
    ),
    *_pair(
        "item-outcome",
        "end_item",
        starts,
        job="narrate",
        before=(("partial",), (3,)),
        after=(("partial", "succeeded"), (2, 3)),
        items=(("unknown 1", "done 1", "done 1"), ("done 1",)),
    ),
    *_pair(
        "batch-write-back",
        "finish_run",
        starts,
        job="narrate",
        before=(_DONE, (3,)),
        after=(_DONE, (3,)),
        items=(_ALL_DONE, _ALL_DONE),
    ),
    *_pair("heartbeat", "renew_claims", beats, job="held", before=(_CRASHED, (1,)), after=(_CRASHED, (1,))),
    *_pair("pause", "pause_job", pauses),
    *_pair("resume", "resume_job", resumes),
    *_pair("cancel", "wish_run", cancels, job="held", before=(_CRASHED, (1,)), after=(("cancelled",), (1,))),
    *_pair("reload", "change_job", reloads),
    *_pair(
        "register", "register_owner", recovers, job="held", before=(_CRASHED, (1,)), after=(_CRASHED, (1,))
    ),
    *_pair(
        "take", "take_for_recovery", recovers, job="held", before=(_CRASHED, (1,)), after=(_CRASHED, (1,))
    ),
    Death(
        name="leftovers-before",
        point="before:leftovers",
        act=recovers,
        job="held",
        states=_CRASHED,
        executions=(1,),
    ),
    Death(
        name="leftovers-after",
        point="after:leftovers",
        act=recovers,
        job="held",
        states=_CRASHED,
        executions=(1,),
    ),
    *_pair("recovery", "finish_run", recovers, job="held", before=(_CRASHED, (1,)), after=(_CRASHED, (1,))),
    *_pair(
        "sign-off",
        "sign_off_owner",
        stops,
        job="held",
        before=(("interrupted",), (1,)),
        after=(("interrupted",), (1,)),
    ),
)

UPGRADES: Final = (
    ("create-uncommitted", "commit:migration"),
    ("create-committed", "committed:migration"),
    ("upgrade-before-copy", "before:backup"),
    ("upgrade-after-copy", "after:backup"),
    ("upgrade-uncommitted", "commit:migration"),
    ("upgrade-committed", "committed:migration"),
)
"""Points of a start on a new store, and on one with the schema before."""
