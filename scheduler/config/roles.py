"""Who may what, as `scheduler.toml` says it: users and groups by name or number, for each role.

    [roles.operate]
    users = ["anna", 1001]
    groups = ["schedulerd"]

Root and the daemon's own user are always *admin*; whoever can open the socket may *observe*, unless
`[roles.observe]` names who may. Without `[roles.operate]` the group `schedulerd` operates, where it exists.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field

from scheduler.config.fields import STRICT, Line
from scheduler.config.wording import Problem, shown

OPERATORS: Final = "schedulerd"

_Id = Annotated[int, Field(ge=0, le=2**32 - 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who has a role: user and group ids."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who may what, beyond root and the daemon's own user; `observe` None: whoever can connect."""

    admin: Members = Members()
    operate: Members = Members()
    observe: Members | None = None


class MembersTable(BaseModel):
    """`[roles.NAME]`."""

    model_config = STRICT

    users: list[Line | _Id] = []
    groups: list[Line | _Id] = []


class RolesTable(BaseModel):
    """`[roles]`."""

    model_config = STRICT

    admin: MembersTable = MembersTable()
    operate: MembersTable | None = None
    observe: MembersTable | None = None


def unknown_members(table: RolesTable) -> Iterator[Problem]:
    """Names that this machine does not know."""
    for role in ("admin", "operate", "observe"):
        members: MembersTable | None = getattr(table, role)
        if members is None:
            continue
        for key, names, find in (("users", members.users, _uid), ("groups", members.groups, _gid)):
            for number, name in enumerate(names):
                if find(name) is None:
                    what = f"there is no {key[:-1]} {shown(str(name))} on this machine"
                    yield Problem(("roles", role, key, number), what)


def roles_of(table: RolesTable) -> Roles:
    """The roles by number; names that are not known are left out, `unknown_members` has told them."""
    operate = MembersTable(groups=[OPERATORS]) if table.operate is None else table.operate
    return Roles(
        admin=_members(table.admin),
        operate=_members(operate),
        observe=None if table.observe is None else _members(table.observe),
    )


def group_id(name: str | int) -> int | None:
    """The number of a group; None where there is no group of that name."""
    return _gid(name)


def _members(table: MembersTable) -> Members:
    return Members(uids=_found(table.users, _uid), gids=_found(table.groups, _gid))


def _found(names: list[str | int], find: Callable[[str | int], int | None]) -> frozenset[int]:
    return frozenset(number for name in names if (number := find(name)) is not None)


def _uid(name: str | int) -> int | None:
    if isinstance(name, int):
        return name
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def _gid(name: str | int) -> int | None:
    if isinstance(name, int):
        return name
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None
