"""Stories of job files and reloads, of names, jitter, log lines, numbers, secrets, sockets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from scheduler.clock import MINUTE, SECOND
from scheduler.config.jobfile import parse_definition
from scheduler.config.settings import Settings
from scheduler.control.binding import bind
from scheduler.engine.overdue import expected_slot, has_begun
from scheduler.errors import ConfigError, Invalid
from scheduler.logline import Masks, console_line, json_line, plain_fields
from scheduler.metrics import Metrics
from tests.support.builders import make_definition
from tests.support.clock import START, FakeClock
from tests.support.desk import Desk
from tests.support.jobfiles import Files

GOOD = '[jobs.{0}]\nevery = "{1}"\nshell = "true"\n'


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "jobs.d"
    folder.mkdir()
    return Files(folder)


async def test_b42_the_socket_is_never_open_to_others(tmp_path: Path) -> None:
    """B42: whatever the umask, it is 0660 in a 0750 directory of its own; too long a path is told."""
    before = os.umask(0)
    try:
        bound = bind(tmp_path / "made" / "s.sock")
    finally:
        os.umask(before)
    with bound.socket:
        assert stat.S_IMODE((tmp_path / "made" / "s.sock").lstat().st_mode) == 0o660
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o750
    with pytest.raises(ConfigError, match="107"):
        bind(tmp_path / ("x" * 120))


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "../../x",
        "-rf",
        "naïve",
        "nai\u0308ve",
        "a\nb",
        "a\x1b[2J",
        "x" * 300,
        "",
        "Upper",
        "a b",
        "[a]",
    ],
)
def test_b45_a_name_that_could_do_harm_is_refused(name: str) -> None:
    """B45: paths, options, look-alikes, control characters, length and case: refused, with the rule."""
    with pytest.raises(Invalid) as refused:
        parse_definition(name, {"manual": True, "shell": "true"}, Settings())

    assert "64" in str(refused.value) or "a-z" in str(refused.value)


@pytest.mark.parametrize("every", [MINUTE])
async def test_b51_jitter_loses_and_doubles_no_slot(desk: Desk, clock: FakeClock, every: int) -> None:
    """B51: one run a slot, within its jitter, without drift, the same at each look; too much is refused."""
    definition = make_definition(every=every, jitter=20 * SECOND, end_at=START + 100 * MINUTE + 5 * SECOND)
    await desk.add(definition)
    slots = []
    for _ in range(100):
        due = (await desk.job()).due_at
        run = await desk.fired()
        assert run.fire_time is not None
        assert due == definition.schedule.due_at(run.fire_time), "no second number is rolled for a slot"
        assert 0 <= due - run.fire_time <= 20 * SECOND
        slots.append(run.fire_time)
        await desk.finish(run)

    assert slots == [START + number * MINUTE for number in range(1, 101)]
    assert (await desk.job()).next_fire_at is None
    with pytest.raises(Invalid, match="jitter"):
        parse_definition("a", {"every": "60s", "jitter": "90s", "shell": "true"}, Settings())


_HOSTILE = (
    '\n{"event":"daemon_stopped"}\n\x1b[2J\u2028"=,\x00',
    "half \ud800",
    'quotes " and = signs',
    "x" * 1_000_000,
)


@pytest.mark.parametrize("value", _HOSTILE, ids=["newline", "surrogate", "quotes", "a megabyte"])
def test_b52_what_a_job_says_forges_no_line(value: str) -> None:
    """B52: one event is one line that parses back; controls are escaped; nothing raises."""
    fields = plain_fields({"event": "run_failed", "message": value, "bad key\n": value}, Masks())

    line = json_line(fields)

    assert line.count(b"\n") == 1
    assert json.loads(line)["event"] == "run_failed"
    assert len(line) < 100_000
    shown = console_line(fields, coloured=False)
    assert shown.count(b"\n") == 1
    assert b"\x1b" not in shown


def test_b54_a_secret_is_in_no_line() -> None:
    """B54: what an env_file holds is masked in text, in exceptions, in nested values."""
    masks = Masks()
    masks.add(["s3cret-token"])

    values = {
        "message": "with s3cret-token",
        "error": RuntimeError("s3cret-token"),
        "more": [["s3cret-token"]],
    }
    line = json_line(plain_fields({"event": "run_failed", **values}, masks))

    assert b"s3cret-token" not in line


async def test_b55_a_job_that_does_not_run_is_overdue(desk: Desk, clock: FakeClock) -> None:
    """B55: skipped by overlap counts as not run; skips are no successes; labels stay bounded."""
    await desk.add(make_definition(every=MINUTE))
    hung = await desk.fired()
    for _ in range(3):
        await desk.fire()
    clock.move(2 * MINUTE)
    slot = expected_slot(await desk.job(), clock.now(), START)
    assert slot is not None
    newest = await desk.store.runs(before=None, limit=20, job=hung.job)
    assert not has_begun(slot, await desk.store.run_at(hung.job, slot), newest)

    metrics = Metrics()
    for _ in range(3):
        metrics.job_skipped("job", "overlap")
    for number in range(1_000):
        metrics.job_ran(f"job-{number}", "succeeded", None, START)
        metrics.job_removed(f"job-{number}")
    text = metrics.render().decode()
    assert 'scheduler_job_runs_total{job="job",reason="overlap",state="skipped"} 3.0' in text
    assert 'state="succeeded"' not in text
    assert hung.id not in text


def test_b58_one_bad_file_keeps_no_other_from_loading(files: Files) -> None:
    """B58: each bad one is told with its file; an expired job is sound; a broken edit keeps what was."""
    files.write("good.toml", GOOD.format("good", "5s"))
    files.write("syntax.toml", "[jobs.a\n")
    files.write("fields.toml", '[jobs.b]\ncron = "* * * *"\nshell = "true"\n')
    files.write("expired.toml", '[jobs.c]\nevery = "5s"\nend_at = 2020-01-01T00:00:00Z\nshell = "true"\n')
    files.write("zone.toml", '[jobs.d]\nevery = "5s"\ntimezone = "Mars/Phobos"\nshell = "true"\n')
    files.write("bytes.toml", b'[jobs.e]\nshell = "\xff"\n')
    (files.folder / "dangling.toml").symlink_to("nowhere")

    loaded = files.reload()

    assert {str(job.id) for job in loaded.added} == {"good", "c"}
    faulty = {Path(fault.file).name for fault in loaded.faults if fault.file}
    assert faulty == {"syntax.toml", "fields.toml", "zone.toml", "bytes.toml", "dangling.toml"}
    files.write("good.toml", GOOD.format("good", "soon"))
    assert list(files.reload().kept) == ["good"]
    for path in files.folder.iterdir():
        path.unlink()
    assert not files.reload().removed, "an empty folder is not `remove all jobs`"


def test_b61_a_reload_goes_by_content(files: Files) -> None:
    """B61: same size, same times, another inode or a folder behind a link: what is read is what is there."""
    path = files.write("a.toml", GOOD.format("a", "5s"))
    files.reload()
    path.write_text(GOOD.format("a", "6s"))
    os.utime(path, (0, 0))
    assert [str(job.id) for job in files.reload().changed] == ["a"]

    fresh = files.write("a.new", GOOD.format("a", "7s"))
    fresh.rename(path)
    os.utime(path, (0, 0))
    assert [str(job.id) for job in files.reload().changed] == ["a"]

    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    assert list(files.reload().kept) == ["a"]
    path.write_text(whole)
    assert list(files.reload().unchanged) == ["a"]


def test_b62_two_files_of_one_name_are_an_error(files: Files) -> None:
    """B62: neither wins, both are named, what was in force stays; renaming a file changes no job."""
    files.write("one.toml", GOOD.format("a", "5s"))
    files.write("two.toml", GOOD.format("a", "6s"))
    refused = files.reload()
    assert (refused.added, refused.changed) == ((), ())
    told = " ".join(str(fault) for fault in refused.faults)
    assert "one.toml" in told
    assert "two.toml" in told

    (files.folder / "two.toml").unlink()
    assert [str(job.id) for job in files.reload().added] == ["a"]
    files.write("two.toml", GOOD.format("a", "6s"))
    assert list(files.reload().kept) == ["a"]
    (files.folder / "two.toml").unlink()
    (files.folder / "one.toml").rename(files.folder / "three.toml")
    assert [str(job.id) for job in files.reload().moved] == ["a"]
