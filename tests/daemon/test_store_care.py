"""The store over the life of real daemons: checked after a kill, restored after damage, refused a place."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from tests.cli.support.living import schedctl
from tests.support.daemon import Daemon

JOBS = '[jobs.a]\nmanual = true\nkeep_runs = 1\ncommand = ["true"]\n'


def _spoil_history(daemon: Daemon) -> None:
    """A page of the runs is overwritten, and what the log held is written back first."""
    with closing(sqlite3.connect(daemon.database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'runs'"
        page, size = db.execute(query).fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(daemon.database.read_bytes())
    data[(page - 1) * size : page * size] = os.urandom(size)
    daemon.database.write_bytes(data)


def test_a_damaged_store_is_refused_and_restored() -> None:
    """I14: after a kill the file is checked; damage ends the start with the remedy, and the remedy works."""
    with Daemon(JOBS) as daemon:
        backup = daemon.path("backup.db")
        run = daemon.run("a")
        daemon.ended(run)
        assert schedctl(daemon, "backup", str(backup)).code == 0
        refused = schedctl(daemon, "restore", str(backup), "--state", str(daemon.state))
        assert (refused.code, "stop the daemon first" in refused.err) == (4, True)

        daemon.kill9()
        daemon.start()
        assert "is whole" in daemon.told("store_checked")["message"]

        daemon.kill9()
        _spoil_history(daemon)
        before = daemon.database.read_bytes()
        assert daemon.launch().wait(30) == 1
        assert "damaged" in daemon.complaint()
        assert "schedctl restore FILE" in daemon.complaint()
        assert daemon.database.read_bytes() == before

        done = schedctl(daemon, "restore", str(backup), "--state", str(daemon.state), "--json")
        assert (done.code, done.json["kept"]) == (0, f"{daemon.database}.replaced-1")
        daemon.start()
        assert daemon.run_of(run)["state"] == "succeeded"
        assert daemon.events("store_checked") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_directory_that_takes_no_file_is_a_clear_error() -> None:
    """I14: exit 1 with the directory, the reason and what to do; the store in it is left as it is."""
    script = textwrap.dedent("""
        import encodings.utf_8_sig, locale, os, sys
        import scheduler.process  # the interpreter may lie where the other user cannot read
        from scheduler.daemon import main
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        main(sys.argv[1:])
    """)
    daemon = Daemon(JOBS)
    try:
        daemon.folder.chmod(0o755)
        daemon.state.mkdir()
        daemon.database.write_bytes(b"whatever")
        for path in (daemon.database, daemon.state, daemon.config, daemon.folder):
            os.chown(path, 65534, 65534)
        daemon.state.chmod(0o500)
        flags = ["--config", str(daemon.config), "--state", str(daemon.state)]
        done = subprocess.run(
            [sys.executable, "-c", script, *flags], capture_output=True, text=True, check=False, timeout=40
        )
        assert done.returncode == 1
        assert str(daemon.state) in done.stderr
        assert "Permission denied" in done.stderr
        assert "check its owner and mode" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in daemon.state.iterdir()] == [daemon.database.name]
    finally:
        daemon.close()
