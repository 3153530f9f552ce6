from __future__ import annotations

import grp
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.cli.connection import Control
from scheduler.clock import SECOND, SystemClock
from scheduler.errors import ClientTimeout, DaemonUnreachable, Forbidden
from tests.cli.conftest import Schedctl
from tests.cli.support.client import call
from tests.cli.support.losing import losing_answers
from tests.cli.support.stub import Answer, StubDaemon


@contextmanager
def peer(place: Path, behave: Callable[[socket.socket], None]) -> Iterator[None]:
    """Something that accepts one connection and behaves so."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                behave(accepted)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join()


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root, who may open every socket, is nobody for a moment."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_the_first_socket_that_answers_is_taken(daemon: StubDaemon, folder: Path) -> None:
    """A missing socket and one that nobody listens on are passed over."""
    dead = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(dead))
    daemon.on("GET", "/v1/status", {"version": "1"})

    reply = Control([str(folder / "none.sock"), str(dead), str(daemon.socket)]).get("/v1/status")

    assert reply.body == {"version": "1"}


def test_without_a_daemon_the_error_names_what_was_tried(folder: Path) -> None:
    """Every path with its reason, and how to start a daemon."""
    dead = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(dead))

    with pytest.raises(DaemonUnreachable) as caught:
        Control([str(folder / "none.sock"), str(dead)]).get("/v1/status")

    assert f"{folder}/none.sock (no such file), {dead} (nobody listens)" in caught.value.message
    assert "schedulerd" in str(caught.value.hint)


def test_a_socket_that_may_not_be_opened_is_forbidden(daemon: StubDaemon) -> None:
    """It is another thing than no daemon: the hint is about rights."""
    daemon.socket.chmod(0)

    with somebody_else(), pytest.raises(Forbidden, match="you may not open") as closed:
        Control([str(daemon.socket)]).get("/v1/status")
    daemon.socket.chmod(0o010)
    daemon.socket.parent.chmod(0o755)
    with somebody_else(), pytest.raises(Forbidden) as shared:
        Control([str(daemon.socket)]).get("/v1/status")

    group = grp.getgrgid(daemon.socket.stat().st_gid).gr_name
    assert str(closed.value.hint).startswith("become root")
    assert "group" not in str(closed.value.hint)
    assert f"a member of its group ({group})" in str(shared.value.hint)


def wait(ended: threading.Event) -> None:
    ended.wait(5)


def test_an_answer_that_does_not_come_ends_the_call(folder: Path) -> None:
    """The call ends at its timeout and says what it waited for."""
    place = folder / "silent.sock"
    ended = threading.Event()

    with peer(place, lambda _: wait(ended)):
        with pytest.raises(ClientTimeout, match=r"within 0.2 s; waited for GET /v1/status on .*silent\.sock"):
            Control([str(place)], timeout=SECOND // 5).get("/v1/status")
        ended.set()


def test_an_answer_in_drops_does_not_stretch_the_timeout(folder: Path) -> None:
    """One deadline holds for the whole answer, however often a byte arrives."""
    place = folder / "dripping.sock"
    ended = threading.Event()

    def drip(accepted: socket.socket) -> None:
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
        while not ended.wait(0.05):
            try:
                accepted.sendall(b" ")
            except OSError:
                return

    clock = SystemClock()
    with peer(place, drip):
        began_at = clock.monotonic()
        with pytest.raises(ClientTimeout):
            Control([str(place)], timeout=SECOND // 2).get("/v1/status")
        took = clock.monotonic() - began_at
        ended.set()

    assert took < 3 * SECOND


def test_a_daemon_too_busy_to_accept_is_waited_for(folder: Path) -> None:
    """A full queue of connections is a timeout (exit 7), not "no daemon" (exit 6)."""
    place = folder / "busy.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen(0)
        waiting = []
        while True:
            queued = socket.socket(socket.AF_UNIX)
            queued.setblocking(False)
            waiting.append(queued)
            if queued.connect_ex(str(place)) != 0:
                break

        with pytest.raises(ClientTimeout, match="a connection to"):
            Control([str(place)], timeout=SECOND // 5).get("/v1/status")
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    ],
)
def test_a_broken_answer_is_a_daemon_that_cannot_be_reached(folder: Path, answer: bytes) -> None:
    """Nothing, half an answer, another protocol, no JSON object: exit 6 with what was waited for."""
    place = folder / "broken.sock"

    def behave(accepted: socket.socket) -> None:
        accepted.recv(65_536)
        accepted.sendall(answer)

    with peer(place, behave), pytest.raises(DaemonUnreachable, match="waited for GET /v1/status"):
        Control([str(place)]).get("/v1/status")


def test_pages_are_followed_to_the_end(daemon: StubDaemon) -> None:
    """Every item of every page comes, in order."""
    daemon.page("/v1/jobs", [{"id": str(n)} for n in range(25)], size=10)

    found = [item["id"] for item in Control([str(daemon.socket)]).pages("/v1/jobs")]

    assert found == [str(n) for n in range(25)]
    assert len(daemon.asked) == 3


def test_a_limit_cuts_the_pages(daemon: StubDaemon) -> None:
    """No more items than wanted come, and no page more than needed is asked for."""
    daemon.page("/v1/runs", [{"id": str(n)} for n in range(25)], size=10)

    found = list(Control([str(daemon.socket)]).pages("/v1/runs", limit=12))

    assert len(found) == 12
    assert [asked.query["limit"] for asked in daemon.asked] == ["12", "2"]


def test_names_are_one_segment_of_a_path(schedctl: Schedctl, daemon: StubDaemon) -> None:
    """A name with a slash or a question mark cannot reach another resource."""
    daemon.on("GET", "/v1/jobs/a/../../x?y/why", Answer(body={"code": "ok"}))

    assert schedctl("why", "a/../../x?y").code == 0


def test_a_dead_daemon_is_exit_six_with_one_line(folder: Path, environ: dict[str, str]) -> None:
    """The line names the socket and says how to start one; stdout stays empty."""
    called = call("list", env={**environ, "SCHEDULER_SOCKET": str(folder / "gone.sock")})

    assert called.code == 6
    assert called.out == ""
    [line] = called.err.splitlines()
    assert f"{folder}/gone.sock (no such file)" in line
    assert "systemctl start schedulerd" in line


def test_the_search_order_of_sockets(folder: Path, environ: dict[str, str]) -> None:
    """Unnamed, the user's runtime directory comes first, then the system's, then the state directory."""
    unnamed = {key: value for key, value in environ.items() if key != "SCHEDULER_SOCKET"}
    places = {"XDG_RUNTIME_DIR": f"{folder}/run", "XDG_STATE_HOME": f"{folder}/state", "SCHEDULER_STATE": ""}

    called = call("list", env={**unnamed, **places})

    order = [
        called.err.index(place)
        for place in (
            f"{folder}/run/schedulerd/control.sock",
            "/run/schedulerd/control.sock (",
            f"{folder}/state/schedulerd/control.sock",
        )
    ]
    assert called.code == 6
    assert order[0] < order[2]
    assert order[1] < order[2]


def test_the_flag_beats_the_environment(schedctl: Schedctl, daemon: StubDaemon, folder: Path) -> None:
    """A named socket is the only one that is tried."""
    called = schedctl("status", "--socket", str(folder / "other.sock"))

    assert called.code == 6
    assert str(daemon.socket) not in called.err
    assert daemon.asked == []


def keys_of(daemon: StubDaemon) -> list[str | None]:
    return [asked.headers.get("Idempotency-Key") for asked in daemon.asked]


def test_a_change_whose_answer_was_lost_is_asked_for_again_under_its_key(
    daemon: StubDaemon, folder: Path
) -> None:
    """Twice nobody knows whether it was made; the third answer comes, and the daemon has seen one key."""
    daemon.on("POST", "/v1/jobs/a/run", {"id": "1"})
    front = folder / "front.sock"

    with losing_answers(front, daemon.socket, times=2):
        reply = Control([str(front)]).post("/v1/jobs/a/run")

    assert reply.body == {"id": "1"}
    assert len(keys_of(daemon)) == 3
    assert len(set(keys_of(daemon))) == 1


def test_every_change_has_a_key_of_its_own_and_a_question_has_none(daemon: StubDaemon) -> None:
    """POST, PUT and DELETE are changes; a read and a preview are not."""
    for method, path in [("POST", "/v1/a"), ("PUT", "/v1/a"), ("DELETE", "/v1/a"), ("POST", "/v1/preview")]:
        daemon.on(method, path, {})
    control = Control([str(daemon.socket)])

    control.post("/v1/a")
    control.put("/v1/a", {}, etag='"1"')
    control.delete("/v1/a")
    control.ask("/v1/preview", {})
    control.get("/v1/jobs")

    assert len(set(keys_of(daemon)[:3])) == 3
    assert all(keys_of(daemon)[:3])
    assert keys_of(daemon)[3:] == [None, None]


def test_a_daemon_that_does_not_come_back_ends_the_asking(folder: Path) -> None:
    """After the time of one call the error says that the change may have been made."""
    place = folder / "gone.sock"

    def leave(accepted: socket.socket) -> None:
        accepted.recv(65_536)
        place.unlink()

    with peer(place, leave), pytest.raises(DaemonUnreachable, match="no whole answer came") as caught:
        Control([str(place)], timeout=SECOND // 2).post("/v1/jobs/a/run")

    assert "before or after" in str(caught.value.hint)
