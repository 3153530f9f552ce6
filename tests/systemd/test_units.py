"""The shipped unit files, looked at without a running systemd, and how they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
PLACE = "/usr/local/lib/schedulerd/bin/schedulerd"

# As docs/systemd.md states them, times ten. Weights change between versions of systemd: a little slack.
EXPOSURE = {"": 32, "hardened": 15, "home": 34, "devices": 34, "other-users": 56}

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def unit_folder(tmp_path: Path) -> Path:
    """The system's units with a program that exists, and an instance of the template."""
    for unit in (UNITS / "system").iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(PLACE, "/bin/true"))
    (tmp_path / "schedulerd@alice.service").write_text((tmp_path / "schedulerd@.service").read_text())
    return tmp_path


def analyze(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, env=environment
    )


def settings_of(unit: str) -> dict[str, str]:
    """The assignments of a unit's [Service], comments aside."""
    text = (UNITS / "system" / unit).read_text().partition("[Service]\n")[2].partition("[Install]")[0]
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@needs_analyze
@pytest.mark.parametrize("unit", ["schedulerd.service", "schedulerd.socket", "schedulerd@alice.service"])
def test_units_are_sound(unit_folder: Path, unit: str) -> None:
    """The analyzer finds nothing to complain about, neither unknown keys nor bad values."""
    done = analyze("verify", "--man=no", "--recursive-errors=yes", unit_folder / unit)

    assert (done.returncode, done.stderr) == (0, "")


@needs_analyze
def test_the_users_unit_is_sound(tmp_path: Path) -> None:
    """The analyzer finds nothing to complain about in the unit for a user's own service manager."""
    text = (UNITS / "user" / "schedulerd.service").read_text()
    (tmp_path / "schedulerd.service").write_text(text.replace(PLACE, "/bin/true"))

    unit = tmp_path / "schedulerd.service"

    done = analyze(
        "--user", "verify", "--man=no", "--recursive-errors=yes", unit, XDG_RUNTIME_DIR=str(tmp_path)
    )

    assert (done.returncode, done.stderr) == (0, "")


@needs_analyze
def test_a_fault_in_a_unit_is_noticed(unit_folder: Path) -> None:
    """The check above is one that can fail: an unknown key is an error."""
    unit = unit_folder / "schedulerd.service"
    unit.write_text(unit.read_text().replace("LockPersonality=", "LockPersonalty="))

    assert analyze("verify", "--man=no", "--recursive-errors=yes", unit).returncode != 0


@needs_analyze
@pytest.mark.parametrize("drop_in", EXPOSURE)
def test_exposure_stays_below_what_is_stated(unit_folder: Path, drop_in: str) -> None:
    """`systemd-analyze security` gives at most the stated exposure, for the unit and with each drop-in."""
    unit = unit_folder / "schedulerd.service"
    if drop_in:
        (unit_folder / "schedulerd.service.d").mkdir()
        shutil.copy(UNITS / "drop-ins" / f"{drop_in}.conf", unit_folder / "schedulerd.service.d")
        assert analyze("verify", "--man=no", "--recursive-errors=yes", unit).stderr == ""

    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE[drop_in]}", unit)

    assert done.returncode == 0, done.stdout[-300:]


def test_the_instances_are_as_closed_as_the_service() -> None:
    """The template differs from the service in user, directories and the home it shows, in no more."""
    service, template = settings_of("schedulerd.service"), settings_of("schedulerd@.service")

    assert {name for name in service if service[name] != template.get(name)} == {
        "User",
        "Group",
        "StateDirectory",
        "ConfigurationDirectory",
        "RuntimeDirectory",
        "RuntimeDirectoryPreserve",
        "ProtectHome",
    }
    assert set(template) <= set(service)


def test_what_the_daemon_and_its_jobs_need_stays_open() -> None:
    """No setting that breaks network, compilers at run time, or the look at who asks is in the unit."""
    for closed in (
        "MemoryDenyWriteExecute",
        "PrivateUsers",
        "PrivateNetwork",
        "ProtectProc",
        "IPAddressDeny",
    ):
        assert closed not in settings_of("schedulerd.service")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_install_and_uninstall_are_each_others_opposite(tmp_path: Path) -> None:
    """`make install` puts units, links and fragments below DESTDIR and PREFIX; `uninstall` leaves none."""
    given = tmp_path / "venv"
    (given / "bin").mkdir(parents=True)
    (given / "bin" / "schedulerd").symlink_to(sys.executable)
    stage = tmp_path / "stage"
    words = [f"DESTDIR={stage}", "PREFIX=/usr", f"INSTALLED={given}"]

    subprocess.run(["make", "-C", ROOT, "install", *words], check=True, capture_output=True)

    unit = (stage / "usr/lib/systemd/system/schedulerd.service").read_text()
    assert f"ExecStart={given}/bin/schedulerd\n" in unit
    assert (stage / "usr/bin/schedctl").is_symlink()
    found = {path.relative_to(stage / "usr").as_posix() for path in stage.rglob("*") if path.is_file()}
    assert {"lib/sysusers.d/schedulerd.conf", "lib/tmpfiles.d/schedulerd.conf"} <= found
    assert {"lib/systemd/user/schedulerd.service", "lib/systemd/system/schedulerd@.service"} <= found
    subprocess.run(["make", "-C", ROOT, "uninstall", *words], check=True, capture_output=True)
    assert [path for path in stage.rglob("*") if not path.is_dir()] == []
