"""Who may what, at a real daemon: users and groups as the kernel names them."""

from __future__ import annotations

import grp
import json
import os
import stat
import subprocess
import sys
from typing import Any

import pytest

from tests.support.daemon import Daemon

GROUP = "daemon"  # one that every system has
NOBODY = 65534
ROLES = f"""
[roles.operate]
groups = ["{GROUP}"]
[listen]
group = "{GROUP}"
"""
ASK = """
import json, os, socket
os.setgroups({groups}); os.setgid({uid}); os.setuid({uid})
peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect({socket!r})
except PermissionError:
    print(json.dumps({{"status": "closed"}})); raise SystemExit
peer.sendall(b"{method} {target} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
answer = b""
while part := peer.recv(65536):
    answer += part
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def asked(daemon: Daemon, target: str, *groups: int, method: str = "POST") -> Any:
    """What a user of no importance who is in these groups is answered."""
    script = ASK.format(
        groups=list(groups), uid=NOBODY, socket=str(daemon.socket), target=target, method=method
    )
    return json.loads(subprocess.check_output([sys.executable, "-c", script], env={}))


def test_a_member_of_the_group_operates_and_no_more() -> None:
    """A supplementary group opens the socket and gives the role: pause yes; reload and remove no."""
    gid = grp.getgrnam(GROUP).gr_gid
    daemon = Daemon('[jobs.nightly]\nmanual = true\nshell = "true"', extra=ROLES)
    daemon.folder.chmod(0o755)
    with daemon:
        found = daemon.socket.stat()
        paused = asked(daemon, "/v1/jobs/nightly/pause", gid)
        refused = [
            asked(daemon, "/v1/reload", gid),
            asked(daemon, "/v1/jobs/nightly", gid, method="DELETE"),
        ]

        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, gid)
        assert paused["job"]["pause"]["by"] == f"uid:{NOBODY}"
        for answer in refused:
            assert (answer["status"], answer["code"]) == (403, "forbidden")
            assert "this needs the role admin" in answer["detail"]
            assert "[roles.admin]" in answer["hint"]
        assert asked(daemon, "/v1/status", method="GET") == {"status": "closed"}
        (entry, *_) = daemon.get("/v1/jobs/nightly/audit")["items"]
        assert (entry["by"]["uid"], entry["by"]["gid"]) == (NOBODY, NOBODY)
        assert entry["by"]["pid"] > 0
        assert "python" in entry["by"]["command"]
        assert daemon.told("request_denied")["uid"] == NOBODY


def test_without_a_group_the_socket_is_the_daemons_own() -> None:
    """Nobody else can connect, whatever groups exist."""
    daemon = Daemon()
    daemon.folder.chmod(0o755)
    with daemon:
        assert daemon.socket.stat().st_gid == os.getegid()
        assert asked(daemon, "/v1/status", grp.getgrnam(GROUP).gr_gid, method="GET") == {"status": "closed"}
