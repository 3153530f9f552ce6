"""Issue 2, point 11: clients of the socket delay neither a stop nor a fire; a live socket is not taken."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from functools import partial

from tests.support.daemon import Daemon

_JOBS = """
[jobs.quick]
manual = true
command = ["true"]
[jobs.each-second]
every = "1s"
command = ["true"]
"""


def _connected(daemon: Daemon) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(daemon.socket))
    return connection


def test_idle_and_slow_clients_do_not_delay_a_stop() -> None:
    """I12: open connections, half requests and readers that never read are not waited for."""
    with Daemon(_JOBS) as daemon:
        clients = [_connected(daemon) for _ in range(6)]
        clients[0].sendall(b"GET /v1/jobs HT")
        clients[1].sendall(b"POST /v1/jobs HTTP/1.1\r\ncontent-length: 1000\r\n\r\n{")
        clients[2].sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
        clients[3].sendall(b"GET /v1/jobs HTTP/1.1\r\nhost: x\r\n\r\n")
        assert daemon.ask("GET", "/v1/jobs").status == 200
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 8
        for client in clients:
            client.close()


def test_stale_socket_is_replaced() -> None:
    """I7: after kill -9 the socket file is there, nobody answers, and the next start takes its place."""
    with Daemon(_JOBS) as daemon:
        daemon.kill9()
        assert daemon.socket.exists()
        daemon.start()
        assert daemon.get("/v1/status")["pid"] == daemon.pid


def test_live_socket_of_another_is_never_taken_over() -> None:
    """I1: where something answers the start ends with 1 and a clear line, and the other serves on.

    Nothing was begun by then: there is no store.
    """
    daemon = Daemon(_JOBS)
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as other:
            other.bind(str(daemon.socket))
            other.listen()
            began = time.monotonic()
            assert daemon.launch().wait(15) == 1
            assert time.monotonic() - began < 10
            assert str(daemon.socket) in daemon.complaint()
            assert "Traceback" not in daemon.complaint()
            assert not daemon.database.exists()
            with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
                client.connect(str(daemon.socket))
    finally:
        daemon.close()


def test_place_that_takes_no_socket_ends_the_start_in_order() -> None:
    """I14: a failure after the store was opened closes it: exit 1 within seconds, no hanging thread."""
    daemon = Daemon(_JOBS)
    try:
        daemon.socket.mkdir()
        assert daemon.launch().wait(15) == 1
        assert "Traceback" not in daemon.complaint()
        assert daemon.complaint().count("\n") <= 3
    finally:
        daemon.close()


def test_start_whose_client_went_away_runs_once_and_is_recorded() -> None:
    """I10: a request that was received whole is carried out, whether or not anybody reads the answer."""
    with Daemon(_JOBS) as daemon:
        for number in range(1, 6):
            with closing(_connected(daemon)) as client:
                client.sendall(
                    b"POST /v1/jobs/quick/run HTTP/1.1\r\nhost: x\r\n"
                    b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
                )
                daemon.until(partial(_are_there, daemon, number))
            daemon.until(lambda: daemon.job("quick")["live_runs"] == [])
        assert [row["state"] for row in daemon.runs("quick")] == ["succeeded"] * 5


def _are_there(daemon: Daemon, runs: int) -> bool:
    return len(daemon.runs("quick")) == runs


def test_flood_of_requests_does_not_delay_fires() -> None:
    """I15: with sixteen clients that ask without a pause, every slot of a job starts within a second."""
    with Daemon(_JOBS) as daemon, ThreadPoolExecutor(16) as pool:
        over = threading.Event()

        def hammer(_: int) -> int:
            asked = 0
            while not over.is_set():
                with suppress(OSError):
                    daemon.ask("GET", "/v1/runs?limit=200")
                    asked += 1
            return asked

        asking = [pool.submit(hammer, number) for number in range(16)]
        try:
            daemon.until(lambda: len(daemon.runs("each-second")) >= 4)
        finally:
            over.set()
        assert sum(task.result() for task in asking) > 50
        rows = [row for row in daemon.runs("each-second") if row["state"] != "skipped"]
        late = [
            (
                datetime.fromisoformat(row["started_at"]) - datetime.fromisoformat(row["fire_time"])
            ).total_seconds()
            for row in rows
        ]
        assert max(late) < 1.0, late
