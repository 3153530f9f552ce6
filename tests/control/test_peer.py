"""Who may change something: by user, and by being inside of a run or not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.control.peer import Credentials, Gatekeeper, Role, credentials_of
from scheduler.errors import Forbidden
from scheduler.systemd import control_groups
from tests.control.support.client import Client
from tests.control.support.serving import Daemon

NOBODY = 65_534
STORE = "store-of-this-test"
SLEEP = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

ASK = """
    import json, os, socket
    peer = socket.socket(socket.AF_UNIX)
    peer.connect({socket!r})
    peer.sendall(b"POST {target} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    answer = b""
    while part := peer.recv(65536):
        answer += part
    print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""


def program(path: Path, target: str, *, first: str = "") -> str:
    """A program that asks once and prints the body of the answer."""
    return textwrap.dedent(first) + textwrap.dedent(ASK).format(socket=str(path), target=target)


def keeper(**changes: Any) -> Gatekeeper:
    return Gatekeeper(**{"store_id": STORE, "own_uid": os.geteuid(), "daemon_pid": None, **changes})


def me(**changes: Any) -> Credentials:
    return Credentials(**{"pid": os.getpid(), "uid": os.geteuid(), "gid": os.getegid(), **changes})


@contextlib.contextmanager
def living(argv: list[str], *, environ: dict[str, str] | None = None) -> Iterator[int]:
    """The pid of a process that has been exec'ed and wrote its first line; it ends with the block."""
    with subprocess.Popen(
        argv, executable=sys.executable, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Credentials]:
    """A living child process with an environment of the test's choice."""
    with living(SLEEP, environ=getattr(request, "param", {})) as pid:
        yield me(pid=pid)


def pid_of_the_dead() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class TestRoles:
    def test_credentials_are_those_of_the_other_end(self) -> None:
        """The kernel names the process that connected."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert credentials_of(ours) == me()

    @pytest.mark.parametrize(
        ("uid", "role"), [(0, Role.ADMIN), (1234, Role.ADMIN), (1235, Role.OBSERVE), (NOBODY, Role.OBSERVE)]
    )
    def test_root_and_the_daemons_user_are_admin(self, uid: int, role: Role) -> None:
        """Everybody else who can connect may look."""
        assert keeper(own_uid=1234).role_of(uid) is role

    async def test_an_observer_is_told_what_to_do(self) -> None:
        """The refusal says who may, and is on record with what was asked."""
        with capture_logs() as lines, pytest.raises(Forbidden, match=f"user {NOBODY} may look") as refused:
            await keeper().admit(me(uid=NOBODY), "POST /v1/jobs/x/pause")

        assert refused.value.hint is not None
        assert "as root" in refused.value.hint
        (line,) = lines
        assert (line["event"], line["uid"], line["pid"]) == ("request_denied", NOBODY, os.getpid())
        assert line["request"] == "POST /v1/jobs/x/pause"

    async def test_nobody_in_particular_may_nothing(self) -> None:
        """A request without a peer is refused."""
        with pytest.raises(Forbidden):
            await keeper().admit(None, "POST /")

    async def test_the_command_is_bounded_and_printable(self) -> None:
        """What a process writes as its command line cannot forge a log or an audit."""
        argv = ["x\x1b[31m\n" + "y" * 1_000, *SLEEP[1:]]
        with living(argv) as pid:
            admitted = await keeper().admit(me(pid=pid), "POST /")

        assert admitted.command.isprintable()
        assert admitted.command.startswith("x\\x1b[31m\\n")
        assert len(admitted.command) <= 200


class TestInsideARun:
    @pytest.mark.parametrize(
        "child", [{"SCHEDULER_RUN_ID": "run-1", "SCHEDULER_STORE_ID": STORE}], indirect=True
    )
    async def test_a_process_with_the_environment_of_our_run_may_only_look(self, child: Credentials) -> None:
        """A job does not lift its own pause; the refusal names the run."""
        with capture_logs(), pytest.raises(Forbidden, match="inside run run-1"):
            await keeper().admit(child, "POST /")

    @pytest.mark.parametrize(
        "child",
        [{}, {"SCHEDULER_RUN_ID": "run-1", "SCHEDULER_STORE_ID": "other"}, {"SCHEDULER_STORE_ID": STORE}],
        indirect=True,
    )
    async def test_a_process_of_no_run_of_ours_is_an_ordinary_one(self, child: Credentials) -> None:
        """Another daemon's run, or no run, is not ours to restrict."""
        assert (await keeper().admit(child, "POST /")).pid == child.pid

    async def test_ancestors_count(self) -> None:
        """A child of a run with an emptied environment is inside it all the same."""
        script = f"import subprocess; subprocess.run({SLEEP!r}, env={{}})"
        environ = {"SCHEDULER_RUN_ID": "run-1", "SCHEDULER_STORE_ID": STORE}
        with living([sys.executable, "-c", script], environ=environ) as pid:
            (grandchild,) = children_of(pid)
            with capture_logs(), pytest.raises(Forbidden, match="inside run run-1"):
                await keeper().admit(me(pid=grandchild), "POST /")

    async def test_descendants_of_the_daemon_are_inside_a_run(self, child: Credentials) -> None:
        """Whatever its environment says, a child of the daemon is part of a job; the daemon itself is not."""
        strict = keeper(daemon_pid=os.getpid())

        with capture_logs(), pytest.raises(Forbidden, match="inside a run"):
            await strict.admit(child, "POST /")
        assert (await strict.admit(me(), "POST /")).pid == os.getpid()

    async def test_whoever_is_in_the_service_of_the_daemon_is_inside_a_run(self, child: Credentials) -> None:
        """A job that leaves its parents and empties its environment is still in the daemon's group."""
        strict = keeper(service=control_groups(os.getpid())[-1].rstrip("/"))

        with capture_logs(), pytest.raises(Forbidden, match="inside the service of the daemon"):
            await strict.admit(child, "POST /")
        outside = keeper(service="/system.slice/other.service")
        assert (await outside.admit(child, "POST /")).pid == child.pid

    async def test_a_process_that_is_gone_is_not_trusted(self) -> None:
        """A job that hands its connection on and exits gains nothing."""
        with capture_logs(), pytest.raises(Forbidden, match="gone"):
            await keeper().admit(me(pid=pid_of_the_dead()), "POST /")

    async def test_a_peer_without_a_pid_here_is_an_ordinary_one(self) -> None:
        """A process outside of our pid namespace cannot descend from us."""
        assert (await keeper().admit(me(pid=0), "POST /")).pid == 0


class TestDaemon:
    @pytest.mark.parametrize("start", ["exec", "exec env -i", "env -i setsid"])
    async def test_a_job_cannot_lift_its_own_pause(self, daemon: Daemon, start: str) -> None:
        """A run that asks to resume its job gets 403, also with an emptied environment; the pause stays."""
        script = daemon.folder / "ask.py"
        script.write_text(program(daemon.client.path, "/v1/jobs/clever/resume"))
        line = f"{start} {sys.executable} {script}"
        await daemon.define(f'[jobs.clever]\nmanual = true\nshell = "{line}"\n', file="clever.toml")
        await daemon.client.post("/v1/jobs/clever/pause", {"reason": "stay"})

        run = await daemon.run("clever")
        await daemon.until_run(run, "succeeded")

        said = json.loads((await daemon.client.get(f"/v1/runs/{run}/output?stream=stdout")).text)
        assert (said["status"], said["code"]) == (403, "forbidden")
        assert "inside" in said["detail"]
        assert (await daemon.client.value("/v1/jobs/clever"))["pause"]["note"] == "stay"

    async def test_a_job_may_look(self, daemon: Daemon) -> None:
        """A run may read about itself."""
        script = daemon.folder / "ask.py"
        script.write_text(program(daemon.client.path, "/v1/status").replace('b"POST', 'b"GET'))
        line = f"{sys.executable} {script}"
        await daemon.define(f'[jobs.curious]\nmanual = true\nshell = "{line}"\n', file="curious.toml")
        run = await daemon.run("curious")
        await daemon.until_run(run, "succeeded")

        assert json.loads((await daemon.client.get(f"/v1/runs/{run}/output")).text)["draining"] is False

    @needs_root
    async def test_another_user_may_look_and_nothing_else(self, daemon: Daemon) -> None:
        """A user whom the permissions of the socket let in reads, and gets 403 for every mutation."""
        path = daemon.client.path
        for opened in (daemon.folder, path.parent):
            opened.chmod(0o755)
        path.chmod(0o666)
        become = f"import json, os, socket\nos.setgid({NOBODY}); os.setuid({NOBODY})\n"

        look = await asked(program(path, "/v1/status", first=become).replace('b"POST', 'b"GET'))
        pause = await asked(program(path, "/v1/jobs/nightly/pause", first=become))
        preview = await asked(program(path, "/v1/preview", first=become))

        assert look["draining"] is False
        assert preview["code"] == "invalid"  # a read: it got as far as its missing body
        assert (pause["status"], pause["code"]) == (403, "forbidden")
        assert f"user {NOBODY} may look" in pause["detail"]
        assert (await daemon.client.value("/v1/jobs/nightly"))["status"] == "active"


async def test_every_route_that_changes_something_judges_the_peer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mutation of the document goes without the check of the peer."""

    async def nobody(*_: object) -> None:
        raise Forbidden("nobody may")

    monkeypatch.setattr(Gatekeeper, "admit", nobody)
    document = await client.value("/openapi.json")
    mutations = sorted(
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "get" and path != "/v1/preview"
    )

    assert len(mutations) >= 13
    for method, path in mutations:
        id = "nightly" if "/jobs/" in path else "00000000-0000-7000-8000-000000000000"
        target = path.replace("{id}", id).replace("{key}", "one")
        assert (await client.ask(method.upper(), target)).status == 403, (method, path)


async def asked(script: str) -> Any:
    """The body of the answer that a process of its own gets, one that is no child of this one's runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env={}
    )
    out, _ = await process.communicate()
    return json.loads(out)
