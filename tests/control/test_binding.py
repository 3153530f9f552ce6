"""The socket in the file system: mode, directory, and whose it is."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.control import binding
from scheduler.control.binding import Bound, adopt, bind
from scheduler.errors import AlreadyServed, ConfigError

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextlib.contextmanager
def somebody_listens(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield listener


@contextlib.contextmanager
def bound_at(path: Path) -> Iterator[Bound]:
    bound = bind(path)
    with bound.socket:
        yield bound


class TestMode:
    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
    def test_the_mode_does_not_depend_on_the_umask(self, folder: Path, mask: int) -> None:
        """The socket is 0660 in a directory of 0750 that is made for it, whatever the umask (B42)."""
        path = folder / "made" / "too" / "control.sock"
        with umask(mask), bound_at(path):
            assert mode_of(path) == 0o660
            assert mode_of(path.parent) == mode_of(path.parent.parent) == 0o750
            assert path.lstat().st_uid == os.geteuid()

    def test_no_look_finds_a_wider_mode(self, folder: Path) -> None:
        """From its first moment on the socket has no permission for others, also under umask 000 (B42)."""
        path = folder / "control.sock"
        seen: set[int] = set()
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                with contextlib.suppress(FileNotFoundError):
                    seen.add(mode_of(path))

        watcher = threading.Thread(target=watch)
        watcher.start()
        with umask(0o000):
            for _ in range(200):
                with bound_at(path) as bound:
                    bound.remove()
        done.set()
        watcher.join()

        assert seen <= {0o660}

    @needs_root
    def test_another_user_cannot_connect(self, folder: Path) -> None:
        """A user outside of the socket's group is turned away by the kernel (B42)."""
        folder.chmod(0o755)
        knock = f"""if True:
            import os, socket
            os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
            socket.socket(socket.AF_UNIX).connect({str(folder / "control.sock")!r})
        """
        with bound_at(folder / "control.sock"):
            ended = subprocess.run([sys.executable, "-c", knock], capture_output=True, check=False)

        assert b"PermissionError" in ended.stderr.splitlines()[-1]


class TestPlace:
    def test_a_path_that_is_too_long_is_told_with_the_limit(self, folder: Path) -> None:
        """120 characters do not fit into a socket's address; the message says how many do (B42)."""
        with pytest.raises(ConfigError, match="107"):
            bind(folder / ("x" * 120))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another group")
    def test_a_directory_that_a_group_of_others_may_write_is_refused(self, folder: Path) -> None:
        """Any of its members could put another socket in place of ours, and hear what is asked of it."""
        os.chown(folder, 0, 1)
        folder.chmod(0o770)

        with pytest.raises(ConfigError, match=r"may be written by group .*chmod g-w"):
            bind(folder / "s.sock")

    def test_a_directory_that_everybody_may_write_is_refused(self, folder: Path) -> None:
        """There anybody could put another socket in place of ours (B42)."""
        folder.chmod(0o777)

        with pytest.raises(ConfigError, match="everybody may write"):
            bind(folder / "control.sock")

    @needs_root
    def test_a_directory_of_another_user_is_refused(self, folder: Path) -> None:
        """Its owner could put another socket in place of ours."""
        os.chown(folder, NOBODY, NOBODY)

        with pytest.raises(ConfigError, match=f"belongs to user {NOBODY}"):
            bind(folder / "control.sock")

    def test_a_directory_that_is_a_file_is_refused(self, folder: Path) -> None:
        """The message names the place, whatever is wrong with it."""
        (folder / "file").write_text("")

        with pytest.raises(ConfigError, match="file"):
            bind(folder / "file" / "control.sock")


class TestPredecessor:
    def test_a_stale_socket_is_replaced(self, folder: Path) -> None:
        """A socket that a dead daemon left behind, on which nobody listens, is no obstacle."""
        path = folder / "control.sock"
        with somebody_listens(path):
            pass
        assert path.exists()

        with bound_at(path):
            assert mode_of(path) == 0o660

    def test_a_live_socket_is_not_taken_over(self, folder: Path) -> None:
        """A daemon that listens keeps its socket, and is not disturbed."""
        path = folder / "control.sock"
        with somebody_listens(path) as listener:
            inode = path.lstat().st_ino

            with pytest.raises(AlreadyServed, match="listens"):
                bind(path)

            assert path.lstat().st_ino == inode
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
            listener.accept()[0].close()

    def test_a_live_socket_whose_queue_is_full_is_not_taken_over(self, folder: Path) -> None:
        """A daemon that is too busy to accept is alive."""
        path = folder / "control.sock"
        with somebody_listens(path) as listener, contextlib.ExitStack() as clients:
            listener.listen(0)
            for _ in range(5):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect_ex(str(path))

            with pytest.raises(AlreadyServed):
                bind(path)

    @pytest.mark.parametrize("target", ["real.sock", "nowhere"])
    def test_a_symbolic_link_is_refused(self, folder: Path, target: str) -> None:
        """Where a link points to may be anybody's; it stays as it is."""
        path = folder / "control.sock"
        path.symlink_to(folder / target)

        with pytest.raises(ConfigError, match="symbolic link"):
            bind(path)

        assert path.is_symlink()

    def test_a_file_is_not_removed(self, folder: Path) -> None:
        """What is no socket is somebody's data."""
        path = folder / "control.sock"
        path.write_text("precious")

        with pytest.raises(ConfigError, match="no socket"):
            bind(path)

        assert path.read_text() == "precious"

    def test_two_that_start_at_once_do_not_take_one_another_for_stale(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of many simultaneous starts on a stale socket exactly one gets it, and keeps it."""
        path = folder / "control.sock"
        look = binding._is_served  # noqa: SLF001 - the race is between this look and what follows it

        def look_and_linger(place: Path) -> bool:
            served = look(place)
            time.sleep(0.1)
            return served

        monkeypatch.setattr(binding, "_is_served", look_and_linger)
        with somebody_listens(path):
            pass
        start = threading.Barrier(8)
        won: list[socket.socket] = []

        def race() -> None:
            start.wait()
            with contextlib.suppress(AlreadyServed):
                won.append(bind(path).socket)

        racers = [threading.Thread(target=race) for _ in range(8)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()

        assert len(won) == 1
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        won[0].close()


class TestRemove:
    def test_our_own_socket_is_removed(self, folder: Path) -> None:
        """Nothing is left of it, and a second removal finds nothing to do."""
        with bound_at(folder / "control.sock") as bound:
            bound.remove()
            bound.remove()

            assert not bound.path.exists()

    def test_the_socket_of_a_successor_stays(self, folder: Path) -> None:
        """What stands at the path by now is another file, and not ours to remove."""
        with bound_at(folder / "control.sock") as bound:
            bound.path.unlink()
            with somebody_listens(bound.path):
                bound.remove()

                assert bound.path.exists()


class TestAdopt:
    def test_a_socket_of_the_service_manager_is_used_and_left(self, folder: Path) -> None:
        """The descriptor is served; its file is not removed, for the service manager goes on listening."""
        with somebody_listens(folder / "activated.sock") as listener:
            bound = adopt(os.dup(listener.fileno()))

            assert bound.path == folder / "activated.sock"
            bound.remove()
            bound.socket.close()

        assert (folder / "activated.sock").exists()

    def test_other_descriptors_are_refused(self, folder: Path) -> None:
        """No socket, one that does not listen, one of the network, an abstract one: each is told."""
        with contextlib.ExitStack() as opened:
            file = opened.enter_context((folder / "file").open("w"))
            deaf = opened.enter_context(socket.socket(socket.AF_UNIX))
            network = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            abstract = opened.enter_context(socket.socket(socket.AF_UNIX))
            abstract.bind(b"\0" + os.urandom(8).hex().encode())
            abstract.listen()

            for given, word in [
                (file.fileno(), "no socket"),
                (deaf.fileno(), "listening"),
                (network.fileno(), "Unix"),
                (abstract.fileno(), "abstract"),
            ]:
                with pytest.raises(ConfigError, match=word):
                    adopt(given)
