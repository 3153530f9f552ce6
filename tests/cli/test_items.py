"""`items`, `item`, `retry --failed|--items`, `run --new` and `watch` for batches, against the real daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support.client import Called, call_on_terminal
from tests.cli.support.living import begun, environ_of, schedctl
from tests.support.daemon import Daemon

JOBS = """
[jobs.mixed]
manual = true
shell = '''
case "$SCHEDULER_ITEM_KEY" in
    bad-*) echo "no luck"; test -e {here}/healed ;;
    doubtful) kill -9 $$ ;;
    *) echo '{{"cost": 0.5}}' >&$SCHEDULER_PROGRESS_FD ;;
esac
'''
[jobs.mixed.batch]
items = ["good", "bad-1", "bad-2"]
[jobs.doubt]
manual = true
shell = '[ "$SCHEDULER_ITEM_KEY" != doubtful ] || kill -9 $$'
[jobs.doubt.batch]
items = ["sure", "doubtful"]
[jobs.gated]
manual = true
shell = 'until test -e {here}/$SCHEDULER_ITEM_KEY; do sleep 0.05; done'
[jobs.gated.batch]
items = ["a", "b", "c", "d"]
concurrency = 1
""".replace("{{", "{").replace("}}", "}")


@pytest.fixture(scope="module")
def serving() -> Iterator[Daemon]:
    with Daemon(JOBS) as started:
        yield started


@pytest.fixture
def daemon(serving: Daemon) -> Iterator[Daemon]:
    """The daemon of all tests here; what a test leaves behind is ended, and its jobs are gone."""
    serving.write(JOBS)
    serving.post("/v1/reload")
    yield serving
    for state in ("queued", "running", "waiting", "held"):
        for run in serving.get(f"/v1/runs?state={state}")["items"]:
            serving.post(f"/v1/runs/{run['id']}/cancel")
            serving.ended(run["id"])
    for gate in ("healed", "a", "b", "c", "d"):
        serving.path(gate).unlink(missing_ok=True)
    serving.write("")
    serving.post("/v1/reload")


def waited(daemon: Daemon, job: str, *options: str) -> tuple[str, Called]:
    """The id of a run that has come to rest, and the call that waited for it."""
    called = schedctl(daemon, "run", job, "--wait", "--json", *options)
    return called.lines[-1]["id"], called


def states(daemon: Daemon, run: str) -> dict[str, str]:
    return {item["key"]: item["state"] for item in schedctl(daemon, "items", run, "--json").lines}


def test_items_tell_state_tries_cost_and_what_went_wrong(daemon: Daemon) -> None:
    """In the order of the list; a filter by state; JSON is a line for each item."""
    run, called = waited(daemon, "mixed")

    table = schedctl(daemon, "items", run).out.splitlines()
    failed = schedctl(daemon, "items", run, "--state", "failed", "--json").lines

    assert called.code == 1
    assert table[0].split() == ["ITEM", "STATE", "TRIES", "TOOK", "COST", "WHAT"]
    assert re.match(r"good +done +1 .* 0\.5", table[1])
    assert re.match(r"bad-1 +failed +1 .*exited with code 1", table[2])
    assert [item["key"] for item in failed] == ["bad-1", "bad-2"]
    assert schedctl(daemon, "items", run, "--state", "unknown").out == "no items that are unknown\n"


def test_an_unknown_filter_and_a_run_that_is_not_there_are_told_apart(daemon: Daemon) -> None:
    """Usage is 2 and names the states; a run that is not there is 3."""
    run, _ = waited(daemon, "mixed")

    misspelt = schedctl(daemon, "items", run, "--state", "lost")
    nowhere = schedctl(daemon, "items", "0193f2c4-7a1b-7abc-8000-0123456789ab")

    assert misspelt.code == 2
    assert "unknown" in misspelt.err
    assert nowhere.code == 3


def test_an_operator_settles_what_is_in_doubt(daemon: Daemon) -> None:
    """Retry and then done: the item, its run, and what to do next are told; done is the last word."""
    run, called = waited(daemon, "doubt")
    assert f"schedctl item {run} KEY --done|--retry|--fail" in called.err
    assert states(daemon, run) == {"sure": "done", "doubtful": "unknown"}

    again = schedctl(daemon, "item", run, "doubtful", "--retry")
    done = schedctl(daemon, "item", run, "doubtful", "--done")
    late = schedctl(daemon, "item", run, "doubtful", "--fail")

    assert again.out.splitlines()[0] == "doubtful pending"
    assert f"`schedctl retry {run} --items doubtful` runs it again, no other" in again.out
    assert done.out.splitlines() == ["doubtful done", f"run {run} succeeded"]
    assert (again.code, done.code, late.code) == (0, 0, 4)
    assert "never run again" in late.err


def test_a_misspelt_key_is_three_with_the_nearest(daemon: Daemon) -> None:
    """And `item` without a word is usage."""
    run, _ = waited(daemon, "doubt")

    misspelt = schedctl(daemon, "item", run, "doubtfull", "--done")

    assert misspelt.code == 3
    assert misspelt.err.endswith("did you mean doubtful?\n")
    assert schedctl(daemon, "item", run, "doubtful").code == 2
    assert states(daemon, run)["doubtful"] == "unknown"


def test_retry_takes_the_failed_items_or_those_named(daemon: Daemon) -> None:
    """The same run; both options together are usage; a done item is refused; nothing left is 4."""
    run, called = waited(daemon, "mixed")
    assert f"schedctl retry {run} --failed" in called.err
    daemon.open_gate("healed")

    refused = schedctl(daemon, "retry", run, "--items", "bad-1,good")
    one = schedctl(daemon, "retry", run, "--items", "bad-1")
    daemon.ended(run)
    between = states(daemon, run)
    rest = schedctl(daemon, "retry", run, "--failed")
    daemon.ended(run)

    assert (refused.code, one.code, rest.code) == (4, 0, 0)
    assert "good is done" in refused.err
    assert between == {"good": "done", "bad-1": "done", "bad-2": "failed"}
    assert schedctl(daemon, "retry", run, "--failed", "--items", "good").code == 2
    assert set(states(daemon, run).values()) == {"done"}
    nothing = schedctl(daemon, "retry", run)
    assert nothing.code == 4
    assert "nothing to retry" in nothing.err


def test_a_fresh_run_is_refused_while_one_is_in_doubt(daemon: Daemon) -> None:
    """Exit 4 that names it and the way on; `--new` begins anew."""
    run, _ = waited(daemon, "doubt")

    refused = schedctl(daemon, "run", "doubt")
    fresh, _ = waited(daemon, "doubt", "--new")

    assert refused.code == 4
    assert run in refused.err
    assert "retry" in refused.err
    assert fresh != run


def test_waiting_for_a_batch_that_is_held_ends_and_resume_goes_on(daemon: Daemon) -> None:
    """Exit 1 with the way on; after it the same run ends well, and `watch` of it is 0."""
    waiter = begun(daemon, "run", "gated", "--wait")
    daemon.until(lambda: daemon.runs("gated") and daemon.runs("gated")[0]["state"] == "running")
    run = daemon.runs("gated")[0]["id"]
    daemon.until(lambda: "running" in states(daemon, run).values())

    schedctl(daemon, "pause", "gated", "--mode", "item")
    daemon.open_gate("a")
    out, err = waiter.communicate(timeout=30)

    assert waiter.returncode == 1
    assert "held" in out
    assert "`schedctl resume gated` lets it go on" in err
    assert schedctl(daemon, "watch", run).code == 1
    for key in "bcd":
        daemon.open_gate(key)
    schedctl(daemon, "resume", "gated")
    watched = schedctl(daemon, "watch", run)
    assert watched.code == 0
    assert watched.out.splitlines()[-1] == f"gated run {run} succeeded"


def test_watch_draws_a_bar_on_a_terminal(daemon: Daemon) -> None:
    """The bar of a run that has ended is full."""
    run, _ = waited(daemon, "mixed")

    drawn = call_on_terminal("watch", run, env=environ_of(daemon), width=100)

    assert drawn.code == 1
    assert "████████████████████████ partial  1/3, 2 failed" in drawn.out


def test_the_items_of_a_large_batch_come_in_pages(daemon: Daemon, tmp_path: Path) -> None:
    """More than a page of the API, up to `--limit`."""
    file = tmp_path / "items.jsonl"
    file.write_text("".join(f"{number}\n" for number in range(600)))
    daemon.write(
        f'[jobs.many]\nmanual = true\npython = "handlers:nothing"\n[jobs.many.batch]\n'
        f'items_file = "{file}"\nconcurrency = 100\n',
        name="many.toml",
    )
    daemon.path("handlers.py").write_text("async def nothing(run):\n    return None\n")
    schedctl(daemon, "reload")
    run, _ = waited(daemon, "many")

    assert [item["key"] for item in schedctl(daemon, "items", run, "--json").lines] == [
        str(number) for number in range(600)
    ]
    assert len(schedctl(daemon, "items", run, "--limit", "7", "--json").lines) == 7
