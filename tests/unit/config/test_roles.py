"""`[roles]` and `listen.group` of the daemon's own file."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from scheduler.config.paths import ConfigFile
from scheduler.config.roles import Members, Roles
from scheduler.config.settings import Settings, load_settings
from scheduler.errors import ConfigError

ROOT = pwd.getpwuid(0).pw_name
GROUP = grp.getgrgid(0).gr_name


def read(folder: Path, text: str) -> Settings:
    path = folder / "scheduler.toml"
    path.write_text(text)
    return load_settings(ConfigFile(path=path, named=True), {"TZ": "UTC"})


def test_names_and_numbers_become_ids(tmp_path: Path) -> None:
    """Users and groups are known by name or by number; each role has its own."""
    text = f"""
        [roles]
        operate = {{ users = ["{ROOT}", 1001], groups = ["{GROUP}", 2001] }}
        admin = {{ groups = [2002] }}
        observe = {{ users = [7] }}
        [listen]
        group = "{GROUP}"
    """

    settings = read(tmp_path, text)

    assert settings.roles == Roles(
        operate=Members(uids=frozenset({0, 1001}), gids=frozenset({0, 2001})),
        admin=Members(gids=frozenset({2002})),
        observe=Members(uids=frozenset({7})),
    )
    assert settings.socket_group == 0


def test_by_default_the_group_schedulerd_operates(tmp_path: Path) -> None:
    """Where that group exists; whoever can connect may look, and the socket's group is the daemon's own."""
    gids = {group.gr_gid for group in grp.getgrall() if group.gr_name == "schedulerd"}

    settings = read(tmp_path, "")

    assert settings.roles == Roles(operate=Members(gids=frozenset(gids)))
    assert settings.socket_group is None


def test_a_role_that_is_written_is_what_it_says(tmp_path: Path) -> None:
    """An empty table gives the role to nobody."""
    assert read(tmp_path, "[roles.operate]").roles == Roles()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[roles.operate]\nusers = ["nobody-of-this-name"]', "roles.operate.users[0]"),
        ('[roles.admin]\ngroups = [1, "no-such-group"]', "roles.admin.groups[1]"),
        ('[listen]\ngroup = "no-such-group"', "listen.group"),
        ("[roles.operate]\nusers = [-1]", "roles.operate.users[0]"),
        ("[roles.operator]\nusers = [1]", "roles.operator"),
        ("[roles.operate]\nuser = [1]", "roles.operate.user"),
    ],
)
def test_who_is_not_known_is_a_fault(tmp_path: Path, text: str, key: str) -> None:
    """A daemon that let in others than its operator wrote would be worse than none."""
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)

    assert any((fault.key or "").startswith(key) for fault in refused.value.faults), refused.value.faults
    assert os.fspath(tmp_path / "scheduler.toml") in str(refused.value)
