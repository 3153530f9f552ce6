from pathlib import Path

import pytest

from scheduler.config.paths import (
    ConfigFile,
    checked_config,
    checked_socket,
    client_sockets,
    client_stores,
    config_file,
    daemon_socket,
    state_dir,
)
from scheduler.errors import ConfigError

HOME = {"HOME": "/home/ada"}
SERVICE = {
    "CONFIGURATION_DIRECTORY": "/etc/schedulerd",
    "STATE_DIRECTORY": "/var/lib/schedulerd:/var/lib/other",
    "RUNTIME_DIRECTORY": "/run/schedulerd",
}


def test_a_user_gets_the_xdg_defaults() -> None:
    """Started by hand, configuration and state lie in the user's base directories."""
    assert config_file(None, HOME).path == Path("/home/ada/.config/schedulerd/scheduler.toml")
    assert state_dir(None, HOME) == Path("/home/ada/.local/state/schedulerd")


def test_xdg_variables_move_the_defaults_and_relative_ones_are_ignored() -> None:
    """An absolute XDG directory is used; a relative one is ignored, as the specification asks."""
    environ = {**HOME, "XDG_CONFIG_HOME": "/cfg", "XDG_STATE_HOME": "relative"}

    assert config_file(None, environ).path == Path("/cfg/schedulerd/scheduler.toml")
    assert state_dir(None, environ) == Path("/home/ada/.local/state/schedulerd")


def test_the_service_manager_says_where_things_are() -> None:
    """Under systemd its directories are used, and of several state directories the first."""
    state = state_dir(None, SERVICE)

    assert config_file(None, SERVICE).path == Path("/etc/schedulerd/scheduler.toml")
    assert state == Path("/var/lib/schedulerd")
    assert daemon_socket(None, state, SERVICE) == Path("/run/schedulerd/control.sock")


def test_flag_beats_environment_beats_service() -> None:
    """A flag wins over SCHEDULER_*, which wins over systemd's directories."""
    environ = {**SERVICE, "SCHEDULER_STATE": "/env/state", "SCHEDULER_CONFIG": "/env/s.toml"}

    assert state_dir(Path("/flag"), environ) == Path("/flag")
    assert state_dir(None, environ) == Path("/env/state")
    assert config_file(None, environ).path == Path("/env/s.toml")


def test_a_named_config_must_exist_and_a_default_one_need_not(tmp_path: Path) -> None:
    """Only a file that somebody named is asked for; a folder stands for the file in it."""
    assert config_file(tmp_path, {}).path == tmp_path / "scheduler.toml"
    assert config_file(tmp_path, {}).named
    assert not config_file(None, HOME).named
    (tmp_path / "jobs.d").mkdir()
    assert not config_file(tmp_path, {}).named


def test_a_check_is_about_the_service_where_the_user_has_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His own folder counts where it is there, and nothing else counts where one was named."""
    service, own = tmp_path / "etc", tmp_path / "own"
    environ = {"XDG_CONFIG_HOME": str(own)}
    monkeypatch.setattr("scheduler.config.paths._SYSTEM_CONFIG", service)
    assert checked_config(None, environ) == config_file(None, environ)
    service.mkdir()
    assert checked_config(None, environ) == ConfigFile(path=service / "scheduler.toml", named=False)
    assert checked_config(tmp_path, environ) == config_file(tmp_path, environ)
    (own / "schedulerd").mkdir(parents=True)
    assert checked_config(None, environ) == config_file(None, environ)


def test_relative_paths_become_absolute_without_following_links(tmp_path: Path) -> None:
    """A link in a path stays, so that swapping the link is seen at the next read."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert config_file(tmp_path / "link" / ".." / "link", {}).path == tmp_path / "link" / "scheduler.toml"


@pytest.mark.parametrize(
    ("environ", "socket"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/1000"}, "/run/user/1000/schedulerd/control.sock"),
        ({}, "/state/control.sock"),
    ],
)
def test_the_socket_lies_in_the_runtime_directory_or_beside_the_state(
    environ: dict[str, str], socket: str
) -> None:
    """Without a runtime directory the socket is in the state directory."""
    assert daemon_socket(None, Path("/state"), environ) == Path(socket)


def test_a_client_looks_in_the_documented_order() -> None:
    """A client looks at the user's runtime directory, the system's, then the default state directory."""
    environ = {**HOME, "XDG_RUNTIME_DIR": "/run/user/1000"}

    assert [str(path) for path in client_sockets(None, environ)] == [
        "/run/user/1000/schedulerd/control.sock",
        "/run/schedulerd/control.sock",
        "/home/ada/.local/state/schedulerd/control.sock",
    ]


def test_a_named_socket_is_the_only_candidate() -> None:
    """A client that was told a socket never falls back to another daemon's."""
    environ = {**HOME, "SCHEDULER_SOCKET": "/env.sock"}

    assert client_sockets(None, environ) == (Path("/env.sock"),)
    assert client_sockets(Path("/flag.sock"), environ) == (Path("/flag.sock"),)


@pytest.mark.parametrize(
    ("socket", "store"),
    [
        ("/srv/a/control.sock", "/srv/a"),
        ("/run/schedulerd/control.sock", "/var/lib/schedulerd"),
        ("/run/user/1000/schedulerd/control.sock", "/home/ada/.local/state/schedulerd"),
    ],
)
def test_a_named_socket_stands_for_one_store(socket: str, store: str) -> None:
    """Never for the default one, unless it is the default socket: that store is another daemon's."""
    environ = {**HOME, "XDG_RUNTIME_DIR": "/run/user/1000"}

    assert client_stores(None, None, {**environ, "SCHEDULER_SOCKET": socket}) == (Path(store),)
    assert client_stores(None, Path(socket), environ) == (Path(store),)


def test_a_named_store_is_the_only_candidate() -> None:
    """A flag beats the variables, and a socket named by flag the store of a variable."""
    environ = {**HOME, "SCHEDULER_STATE": "/env", "SCHEDULER_SOCKET": "/srv/a/control.sock"}

    assert client_stores(None, None, environ) == (Path("/env"),)
    assert client_stores(Path("/flag"), Path("/srv/b/control.sock"), environ) == (Path("/flag"),)
    assert client_stores(None, Path("/srv/b/control.sock"), environ) == (Path("/srv/b"),)


def test_the_limit_of_107_bytes_counts_bytes_and_is_stated() -> None:
    """107 bytes are accepted, 108 refused with the limit, the length and the ways out."""
    fits = Path("/" + "x" * 106)
    umlauts = Path("/" + "ü" * 54)  # 109 bytes, 55 characters

    assert checked_socket(fits) == fits
    for too_long in (Path("/" + "x" * 107), umlauts):
        with pytest.raises(ConfigError, match="at most 107") as refused:
            checked_socket(too_long)
        assert "--socket" in refused.value.message
        assert refused.value.faults[0].key == "listen.socket"


def test_a_home_is_found_without_the_variable() -> None:
    """Without HOME the user database is asked, and the answer is absolute."""
    assert state_dir(None, {}).is_absolute()
