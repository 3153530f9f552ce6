"""Issue 5, point 2, in the running daemon: pauses with an end and of all jobs, over deaths of the process."""

from __future__ import annotations

import socket
import time

from tests.support.daemon import Daemon

JOBS = """
[jobs.tick]
every = "1s"
shell = "true"
late_after = "1s"

[jobs.long]
manual = true
shell = "touch '{here}/long.on'; while [ ! -e '{here}/long.gate' ]; do sleep 0.02; done"
"""


def fired(daemon: Daemon) -> int:
    """How many fire times of `tick` have run."""
    return len([run for run in daemon.runs("tick") if run["state"] == "succeeded"])


def skips(daemon: Daemon) -> dict[str, int]:
    """Fire times of `tick` that did not run, by reason."""
    told: dict[str, int] = {}
    for run in daemon.runs("tick"):
        if run["state"] == "skipped":
            told[run["reason"]] = told.get(run["reason"], 0) + run["count"]
    return told


def test_a_timed_pause_outlives_a_kill_and_lifts_itself() -> None:
    """Killed and started again within it, it holds; after its moment the job fires, and it is told."""
    with Daemon(JOBS) as daemon:
        pause = daemon.post("/v1/jobs/tick/pause", {"for": 4, "reason": "move"})["job"]["pause"]
        daemon.kill9()
        daemon.start()
        assert daemon.job("tick")["pause"] == pause
        before = fired(daemon)

        daemon.until(lambda: daemon.job("tick")["status"] == "active")

        daemon.told("pause_expired", job="tick")
        daemon.until(lambda: fired(daemon) > before)
        assert skips(daemon)["paused"] in (3, 4)


def test_one_that_ends_while_the_daemon_is_down_is_lifted_as_of_its_end() -> None:
    """Fire times after the end were missed, not held: they are told as late by `catch_up`."""
    with Daemon(JOBS) as daemon:
        daemon.until(lambda: fired(daemon) > 0)
        daemon.post("/v1/jobs/tick/pause", {"for": 1.2})
        daemon.kill9()
        time.sleep(5)  # a real process is down for real time
        daemon.start()

        daemon.until(lambda: "misfire" in skips(daemon))

        assert skips(daemon)["paused"] <= 2
        assert skips(daemon)["misfire"] >= 2


def test_a_pause_of_all_outlives_a_kill() -> None:
    """Nothing fires under it in the next life either; what it held is one reason, and no misfire."""
    with Daemon(JOBS) as daemon:
        daemon.until(lambda: fired(daemon) > 0)
        daemon.post("/v1/pause", {"reason": "power cut"})
        before = fired(daemon)
        daemon.kill9()
        daemon.start()
        assert daemon.get("/v1/status")["paused"]["note"] == "power cut"
        time.sleep(2.5)  # fire times pass
        assert fired(daemon) in (before, before + 1), "one may have been under way"

        daemon.post("/v1/resume")

        daemon.until(lambda: fired(daemon) > before + 1)
        assert skips(daemon).keys() == {"global_pause"}
        assert skips(daemon)["global_pause"] >= 2


def test_a_key_outlives_a_kill() -> None:
    """Killed between commit and answer or after it: the same key starts no second run in the next life."""
    with Daemon(JOBS) as daemon:
        headers = {"Idempotency-Key": "once"}
        first = daemon.ask("POST", "/v1/jobs/long/run", {}, headers=headers)
        daemon.until(daemon.path("long.on").exists)
        daemon.kill9()
        daemon.open_gate("long.gate")
        daemon.start()

        again = daemon.ask("POST", "/v1/jobs/long/run", {}, headers=headers)

        assert (first.status, again.status) == (202, 202)
        assert again.body == first.body
        assert [run["id"] for run in daemon.runs("long")] == [first.body["id"]]


def test_killed_at_any_moment_one_key_is_one_run() -> None:
    """I10: whatever the daemon was at when it died, the request that is sent again makes one run."""
    with Daemon(JOBS) as daemon:
        daemon.open_gate("long.gate")
        for number in range(5):
            request = (
                f"POST /v1/jobs/long/run HTTP/1.1\r\nHost: x\r\nIdempotency-Key: key-{number}\r\n"
                'Content-Length: 20\r\n\r\n{"overlap": "queue"}'
            )
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(daemon.socket))
                client.sendall(request.encode())
                time.sleep(0.006 * number)
                daemon.kill9()
            daemon.start()

            answer = daemon.ask(
                "POST",
                "/v1/jobs/long/run",
                {"overlap": "queue"},
                headers={"Idempotency-Key": f"key-{number}"},
            )

            assert answer.status == 202, answer
            assert len(daemon.runs("long")) == number + 1


def test_a_pause_lists_what_is_in_flight_and_events_end_with_the_daemon() -> None:
    """The list of the pause of all is what still runs; the stream of events ends with the reason."""
    with Daemon(JOBS) as daemon:
        run = daemon.run("long")
        answer = daemon.post("/v1/pause", {})
        assert run in [row["id"] for row in answer["runs"]]
        daemon.open_gate("long.gate")
        daemon.ended(run)

        told = daemon.ask("GET", "/v1/events?tail=3&follow=false&job=long").body

        names = [line.removeprefix("event: ") for line in told.split("\n") if line.startswith("event: ")]
        assert names == ["run_claimed", "run_started", "run_succeeded"]
