"""A real systemd in a sandbox, with this schedulerd installed in it as `make install` does.

The tool that boots it (`systemd-sandbox`) is named by SYSTEMD_SANDBOX, found on PATH or beside the checkout;
without it, or without root, the tests that need a service manager are skipped.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[3]
UNIT: Final = "schedulerd.service"
CONFIG: Final = "/etc/schedulerd"
STATE: Final = "/var/lib/schedulerd"

PATIENCE: Final = 20.0

_VENV, _SITE, _SOURCE = "/opt/schedulerd-venv", "/opt/schedulerd-site", "/opt/schedulerd-venv/src"
_SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
_QUICK: Final = {"lease": "3s", "heartbeat": "300ms", "timezone": "UTC", "python_path": ["."]}


def sandbox_tool() -> Path | None:
    """The tool that boots a systemd, where there is one."""
    named = os.environ.get("SYSTEMD_SANDBOX") or shutil.which("systemd-sandbox")
    beside = ROOT.parent / "shared" / "systemd-sandbox"
    found = Path(named) if named else beside
    return found if os.access(found, os.X_OK) else None


def required_tool() -> Path:
    """The tool; the test is skipped where it cannot be used."""
    tool = sandbox_tool()
    if tool is None:
        pytest.skip("no systemd-sandbox: name one in SYSTEMD_SANDBOX")
    if os.geteuid() != 0:
        pytest.skip("a systemd can be booted by root only")
    return tool


def make_environment(folder: Path) -> Path:
    """A virtual environment that an unprivileged user of the sandbox can start: this code, these packages.

    The Python of the tests may be in a home that nobody else may enter; then the system's serves, if it is of
    the same version.
    """
    own = Path(sys.executable).resolve()
    builder = own if not own.is_relative_to(Path.home()) else _SYSTEM_PYTHON
    asked = "import sys; print('{}.{}'.format(*sys.version_info))"
    answer = subprocess.run(
        [builder, "-c", asked], capture_output=True, text=True, check=False
    ).stdout.strip()
    if answer != "{}.{}".format(*sys.version_info):
        pytest.skip(f"no Python {sys.version_info[0]}.{sys.version_info[1]} that other users may start")
    if builder == own:
        venv.create(folder, with_pip=False, symlinks=True)
    else:
        subprocess.run([builder, "-m", "venv", "--without-pip", folder], check=True, capture_output=True)
    site = next((folder / "lib").glob("python3*/site-packages"))
    (site / "schedulerd.pth").write_text(f"{_SOURCE}\n{_SITE}\n")
    for name, module in [("schedulerd", "scheduler.daemon"), ("schedctl", "scheduler.cli.main")]:
        script = folder / "bin" / name
        script.write_text(f"#!{_VENV}/bin/python\nfrom {module} import main\nmain()\n")
        script.chmod(0o755)
    folder.chmod(0o755)
    # A copy: who edits the checkout meanwhile changes nothing here, and it may be in a home as well.
    source = folder / "src"
    source.mkdir()
    for part in ("scheduler", "scripts", "systemd"):
        shutil.copytree(ROOT / part, source / part)
    shutil.copy(ROOT / "Makefile", source)
    return folder


class Machine:
    """A booted sandbox and the schedulerd in it.

    Args:
        tool: the sandbox tool.
        environment: a virtual environment of `make_environment`.
        options: further options of `up`.
    """

    def __init__(self, tool: Path, environment: Path, *options: str) -> None:
        self._tool = [str(tool), "--name", f"schedulerd-{os.getpid()}-{len(options)}"]
        site = sysconfig.get_path("purelib")
        binds = [f"{environment}:{_VENV}", f"{site}:{_SITE}"]
        asked = [word for bind in binds for word in ("--bind-ro", bind)]
        booted = subprocess.run(
            [*self._tool, "up", "--no-repo", *asked, *options], capture_output=True, text=True, check=False
        )
        if booted.returncode != 0:
            pytest.skip(f"no systemd could be booted: {booted.stderr.strip()[-200:]}")
        self._init = self._status().split()[1]
        self._cursor = ""

    def _status(self) -> str:
        return subprocess.run([*self._tool, "status"], capture_output=True, text=True, check=True).stdout

    @property
    def version(self) -> int:
        """Of systemd."""
        return int(self._status().split()[2].split(".")[0].split("-")[0])

    def down(self) -> None:
        """Nothing of it is left."""
        subprocess.run([*self._tool, "down", "--kill"], capture_output=True, check=False)

    # --- the machine ---
    def run(self, *argv: str, check: bool = True, text: str | None = None) -> str:
        """What the command printed; by root, inside."""
        done = subprocess.run(
            [*self._tool, "run", "--", *argv],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL if text is None else None,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def path(self, inside: str) -> Path:
        """A file of the machine as it is seen from here."""
        return Path(f"/proc/{self._init}/root{inside}")

    def write(self, inside: str, text: str) -> None:
        """The file is there, with its folders, for everybody to read."""
        self.run("install", "-D", "-m", "644", "/dev/stdin", inside, text=text)

    def install(self) -> None:
        """The daemon is installed as docs/systemd.md says."""
        self.run("make", "-C", _SOURCE, "install", f"INSTALLED={_VENV}")
        self.run("systemd-sysusers")
        self.run("systemd-tmpfiles", "--create", "schedulerd.conf")
        self.run("systemctl", "daemon-reload")

    # --- the service ---
    def prepare(self, jobs: str = "", *, unit: str = "", handlers: str = "", **settings: object) -> None:
        """Configuration and state are new, and the unit has these further lines; nothing runs."""
        self.clear()
        self._cursor = self.run("journalctl", "-n", "0", "--show-cursor").rpartition("cursor: ")[2]
        keys = {**_QUICK, **settings}
        self.write(f"{CONFIG}/scheduler.toml", "".join(f"{key} = {json.dumps(keys[key])}\n" for key in keys))
        self.write(f"{CONFIG}/handlers.py", handlers)
        self.jobs(jobs)
        self.drop_in("tests.conf", f"[Service]\nRestartSec=100ms\n{unit}\n")

    def jobs(self, text: str) -> None:
        """The job file says this."""
        self.write(f"{CONFIG}/jobs.d/jobs.toml", text)

    def drop_in(self, name: str, text: str) -> None:
        """The unit has this drop-in from its next start."""
        self.write(f"/etc/systemd/system/{UNIT}.d/{name}", text)
        self.run("systemctl", "daemon-reload")

    def clear(self) -> None:
        """No service, no socket, no configuration of a test, no state."""
        for unit in (UNIT, "schedulerd.socket"):
            self.run("systemctl", "kill", "-s", "KILL", unit, check=False)
            self.run("systemctl", "stop", unit, check=False)
            self.run("systemctl", "reset-failed", unit, check=False)
        self.run("umount", STATE, check=False)
        self.run(
            "sh",
            "-c",
            f"rm -rf /etc/systemd/system/{UNIT}.d {CONFIG}/* {STATE} && mkdir -p {CONFIG}/jobs.d",
        )

    def start(self) -> None:
        """The service is active."""
        done = self.run("systemctl", "start", UNIT, check=False)
        assert self.show("ActiveState") == "active", f"{done}\n{self.told()}"

    def show(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "-P", name, UNIT)

    def main_pid(self) -> int:
        """The daemon, by its number inside."""
        return int(self.show("MainPID"))

    def entries(self) -> list[dict[str, Any]]:
        """The journal's entries of the service since `prepare`."""
        return self.found("--after-cursor", self._cursor)

    def found(self, *matches: str) -> list[dict[str, Any]]:
        """What `journalctl -u schedulerd` finds with these matches, of all that the machine ever said."""
        self.run("journalctl", "--sync", check=False)
        lines = self.run("journalctl", "-u", UNIT, "-o", "json", "--all", *matches)
        return [json.loads(line) for line in lines.splitlines()]

    def told(self) -> str:
        """Everything that the service and its manager said, as text."""
        return "\n".join(str(entry.get("MESSAGE")) for entry in self.entries())

    # --- its socket ---
    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer of one request, by root."""
        with closing(_Connection(self.path("/run/schedulerd/control.sock"))) as connection:
            data = None if body is None else json.dumps(body).encode()
            headers = {} if data is None else {"content-type": "application/json"}
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            raw = answer.read()
        return answer.status, json.loads(raw) if raw else None

    def get(self, path: str) -> Any:
        """What a read answers."""
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def start_run(self, job: str) -> str:
        """The id of a run that was started by hand."""
        status, body = self.ask("POST", f"/v1/jobs/{job}/run", {})
        assert status == 202, body
        return str(body["run"]["id"] if "run" in body else body["id"])

    def run_when(self, run: str, *states: str) -> dict[str, Any]:
        """The run, once it is in one of the states."""

        def found() -> dict[str, Any] | None:
            with suppress(OSError, http.client.HTTPException):
                row: dict[str, Any] = self.get(f"/v1/runs/{run}")
                return row if row["state"] in states else None
            return None

        return self.until(found)

    def until(self, condition: Callable[[], T | None], *, seconds: float = PATIENCE) -> T:
        """What the condition gave once it was true."""
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < deadline, f"not true in {seconds} s\n{self.told()[-3000:]}"
            time.sleep(0.03)
        return result


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("schedulerd", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
