"""Who may define a job that runs as another user: root, and that user himself.

The role *admin* alone is not enough: a daemon of root would lend its admins the rights of everybody.
"""

from __future__ import annotations

import pwd

from scheduler.errors import Forbidden
from scheduler.model.jobs import JobDefinition
from scheduler.store.values import Peer
from scheduler.telemetry import Event, get_logger


def check_user(definition: JobDefinition, peer: Peer) -> None:
    """The peer may say what runs as the definition's user, if it names one.

    Raises:
        Forbidden: it may not; that was logged.
    """
    user = definition.user
    if user is None or peer.uid == 0 or peer.uid == _uid(user):
        return
    reason = f"job {definition.id} runs as user {user}: only root and {user} may define it"
    get_logger().warning(
        Event.REQUEST_DENIED,
        job=definition.id,
        reason=reason,
        uid=peer.uid,
        gid=peer.gid,
        pid=peer.pid,
        command=peer.command,
    )
    raise Forbidden(f"{reason}, and user {peer.uid} asks", hint=f"ask as root or as {user}")


def _uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None
