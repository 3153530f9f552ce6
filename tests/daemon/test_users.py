"""Issue 5, point 7: jobs of other users under a real daemon of root."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from typing import Any

import pytest

from tests.support.daemon import Daemon, is_alive

NOBODY = pwd.getpwnam("nobody")
ROLES = """
[roles.admin]
users = ["nobody"]
[listen]
group = "daemon"
"""
ASK = """
import json, os, socket, sys
os.setgroups([int(sys.argv[1])]); os.setgid(65534); os.setuid(65534)
method, target, body = sys.argv[3:6]
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[2])
head = f"{method} {target} HTTP/1.1\\r\\nHost: x\\r\\nIf-Match: *\\r\\nConnection: close\\r\\n"
peer.sendall(f"{head}Content-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
answer = b""
while part := peer.recv(65536):
    answer += part
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def as_nobody(daemon: Daemon, method: str, target: str, body: object) -> Any:
    """What the user nobody, who is an admin, is answered."""
    gid = pwd.getpwnam("daemon").pw_gid
    argv = [sys.executable, "-c", ASK, str(gid), str(daemon.socket), method, target, json.dumps(body)]
    return json.loads(subprocess.check_output(argv, env={}))


def job(user: str, **keys: object) -> dict[str, object]:
    return {"manual": True, "shell": "id -u", "cwd": "/", "user": user, **keys}


def test_only_root_and_the_user_define_jobs_of_a_user() -> None:
    """An admin who is neither is refused, at a creation and at a replacement, and it is logged."""
    daemon = Daemon(extra=ROLES)
    daemon.folder.chmod(0o755)
    with daemon:
        created = as_nobody(daemon, "POST", "/v1/jobs", {"id": "own", **job("nobody")})
        refused = as_nobody(daemon, "POST", "/v1/jobs", {"id": "others", **job("daemon")})
        assert daemon.ask("POST", "/v1/jobs", {"id": "roots", **job("daemon")}).status == 201
        stolen = as_nobody(daemon, "PUT", "/v1/jobs/roots", {"manual": True, "shell": "id"})
        given = as_nobody(daemon, "PUT", "/v1/jobs/own", job("daemon"))

        assert created["definition"]["user"] == "nobody"
        for answer in (refused, stolen, given):
            assert (answer["status"], answer["code"]) == (403, "forbidden"), answer
            assert "runs as user daemon: only root and daemon may define it" in answer["detail"]
        assert daemon.told("request_denied", job="others")["uid"] == NOBODY.pw_uid
        assert daemon.ask("GET", "/v1/jobs/others").status == 404
        run = daemon.ended(daemon.run("own"))
        assert (run["state"], _output(daemon, run)) == ("succeeded", f"{NOBODY.pw_uid}\n")


def _output(daemon: Daemon, run: dict[str, Any]) -> str:
    return str(daemon.ask("GET", f"/v1/runs/{run['id']}/output").body)


_JOBS = """
[jobs.who]
manual = true
user = "nobody"
cwd = "/"
shell = "id -un"
[jobs.long]
manual = true
user = "nobody"
cwd = "/"
shell = "setsid sleep 300 & sleep 300"
[jobs.listed]
manual = true
user = "nobody"
cwd = "/"
shell = "id -un; echo $SCHEDULER_ITEM_KEY"
[jobs.listed.batch]
items_file = "{here}/roots.jsonl"
"""


def test_output_of_another_user_is_the_daemons() -> None:
    """The job writes to pipes; the files are root's, and nobody else reads them."""
    with Daemon(_JOBS) as daemon:
        run = daemon.ended(daemon.run("who"))

        assert _output(daemon, run) == "nobody\n"
        for path in (daemon.state / "output").rglob("*"):
            found = path.stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode) & 0o077) == (0, 0)


def test_a_list_of_items_is_read_with_the_rights_of_the_user() -> None:
    """A batch of another user is no way to a file that he may not read."""
    with Daemon(_JOBS) as daemon:
        daemon.path("roots.jsonl").write_text('"secret"\n')
        daemon.path("roots.jsonl").chmod(0o600)
        run = daemon.ended(daemon.run("listed"))

        assert run["state"] == "failed"
        assert "Permission denied" in run["message"]


@pytest.mark.parametrize("and_warden", [False, True])
def test_processes_of_another_user_do_not_outlive_a_crash(and_warden: bool) -> None:
    """I11: the warden, or the next start, ends what a killed daemon had started as somebody else."""
    with Daemon(_JOBS) as daemon:
        daemon.run_when(daemon.run("long"), lambda run: run["pid"])
        daemon.until(lambda: len(daemon.descendants()) >= 3)
        before = daemon.descendants()
        daemon.kill9(and_warden=and_warden)
        daemon.start()

        daemon.until(lambda: not [pid for pid in before if is_alive(pid)])
        assert daemon.runs("long")[0]["state"] in ("recovering", "crashed")
