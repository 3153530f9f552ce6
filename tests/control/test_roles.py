"""Roles: who may look, operate and define, by user and group, inside and outside of runs."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap

import pytest

from scheduler.config.roles import Members, Roles
from scheduler.control.peer import Credentials, Gatekeeper, Role, credentials_of
from scheduler.errors import Forbidden
from tests.control.support.serving import Daemon

DAEMON, ANNA, BOB, OPERATORS, ADMINS = 501, 1001, 1002, 2001, 2002
ROLES = Roles(
    admin=Members(gids=frozenset({ADMINS})),
    operate=Members(uids=frozenset({ANNA}), gids=frozenset({OPERATORS})),
)


def keeper(roles: Roles = ROLES) -> Gatekeeper:
    return Gatekeeper(store_id="s", own_uid=DAEMON, daemon_pid=None, roles=roles)


def peer(uid: int, *groups: int) -> Credentials:
    return Credentials(pid=os.getpid(), uid=uid, gid=uid, groups=frozenset(groups))


@pytest.mark.parametrize(
    ("uid", "groups", "role"),
    [
        (0, (), Role.ADMIN),
        (DAEMON, (), Role.ADMIN),
        (ANNA, (), Role.OPERATE),
        (ANNA, (ADMINS,), Role.ADMIN),
        (BOB, (), Role.OBSERVE),
        (BOB, (OPERATORS, 7), Role.OPERATE),
        (BOB, (7, ADMINS), Role.ADMIN),
    ],
)
def test_users_and_groups_have_roles(uid: int, groups: tuple[int, ...], role: Role) -> None:
    """The highest that the user or any of its groups has; supplementary groups count."""
    assert keeper().role_of(uid, groups) is role


@pytest.mark.parametrize(
    ("uid", "groups", "needs", "may"),
    [
        (BOB, (), Role.OPERATE, False),
        (BOB, (OPERATORS,), Role.OPERATE, True),
        (BOB, (OPERATORS,), Role.ADMIN, False),
        (BOB, (ADMINS,), Role.ADMIN, True),
        (ANNA, (), Role.ADMIN, False),
        (DAEMON, (), Role.ADMIN, True),
    ],
)
async def test_a_verb_needs_its_role(uid: int, groups: tuple[int, ...], needs: Role, may: bool) -> None:
    """Who has it gets through, who has less is told which it takes and how to get it."""
    asking = keeper().admit(peer(uid, *groups), "POST /v1/jobs", needs)
    if may:
        assert (await asking).uid == uid
        return
    with pytest.raises(Forbidden, match=f"this needs the role {needs}") as refused:
        await asking

    assert f"[roles.{needs}]" in (refused.value.hint or "")


def test_looking_may_be_confined() -> None:
    """With `[roles.observe]` whoever has no role at all may not even look; without it anybody may."""
    confined = Roles(operate=ROLES.operate, observe=Members(gids=frozenset({7})))
    keeper().let_look(peer(BOB), "GET /")
    keeper(confined).let_look(peer(BOB, 7), "GET /")
    keeper(confined).let_look(peer(ANNA), "GET /")

    with pytest.raises(Forbidden, match="this needs the role observe"):
        keeper(confined).let_look(peer(BOB), "GET /")


def test_the_kernel_tells_supplementary_groups() -> None:
    """The groups of the other end are those of its process, not of a list of ours."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert credentials_of(ours).groups == frozenset(os.getgroups())


ASK = """
import json, socket
peer = socket.socket(socket.AF_UNIX)
peer.connect({socket!r})
peer.sendall(b"{method} {target} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
answer = b""
while part := peer.recv(65536):
    answer += part
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""

CONTROL = """
    [jobs.{name}]
    manual = true
    {control}
    shell = "{start} {python} {script}"
"""


@pytest.mark.parametrize(
    ("control", "start", "status"),
    [
        ("control = true", "exec", None),
        ("control = true\n    batch = { items = [1] }", "exec", None),
        ("batch = { items = [1] }", "exec", 403),
        ("control = true", "setsid --wait", None),
        ("control = true", "exec env -i", None),
        ("", "exec", 403),
        ("control = false", "env -i", 403),
    ],
)
async def test_a_job_with_control_may_what_its_user_may(
    daemon: Daemon, control: str, start: str, status: int | None
) -> None:
    """`control = true` lets a run operate the daemon; without it, it may look."""
    script = daemon.folder / "ask.py"
    script.write_text(
        textwrap.dedent(ASK).format(
            socket=str(daemon.client.path), target="/v1/jobs/nightly/pause", method="POST"
        )
    )
    job = CONTROL.format(name="clever", control=control, start=start, python=sys.executable, script=script)
    await daemon.define(job, file="clever.toml")

    run = await daemon.run("clever")
    await daemon.until_run(run, "succeeded")

    output = (await daemon.client.get(f"/v1/runs/{run}/output?stream=stdout")).text
    said = json.loads(output.removeprefix("[1] "))
    assert said.get("status") == status
    paused = (await daemon.client.value("/v1/jobs/nightly"))["status"] == "paused"
    assert paused is (status is None)


async def test_no_job_borrows_the_control_of_another(daemon: Daemon) -> None:
    """A run that writes another run's id into its environment is not believed: processes are what counts."""
    script = daemon.folder / "ask.py"
    script.write_text(
        textwrap.dedent(ASK).format(
            socket=str(daemon.client.path), target="/v1/jobs/nightly/pause", method="POST"
        )
    )
    await daemon.define('[jobs.trusted]\nmanual = true\ncontrol = true\nshell = "sleep 30"', file="t.toml")
    trusted = await daemon.run("trusted")
    await daemon.until(f"/v1/runs/{trusted}", lambda run: run["pid"] is not None)
    line = f"SCHEDULER_RUN_ID={trusted} SCHEDULER_JOB=trusted exec {sys.executable} {script}"
    await daemon.define(f"[jobs.thief]\nmanual = true\nshell = '{line}'", file="thief.toml")

    run = await daemon.run("thief")
    await daemon.until_run(run, "succeeded")

    said = json.loads((await daemon.client.get(f"/v1/runs/{run}/output?stream=stdout")).text)
    assert (said["status"], said["code"]) == (403, "forbidden")
    await daemon.client.post(f"/v1/runs/{trusted}/cancel")
