"""The locks: complete for every Python that we support, and hashed."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
LOCKS = ["requirements.lock", "requirements-dev.lock"]
SITE = "requirements-docs.lock"
AUDIT = "requirements-audit.lock"
PEERS = ["requirements-bench.lock", "requirements-bench-apscheduler4.lock"]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
DEV = [*RUNTIME, *PROJECT["project"]["optional-dependencies"]["dev"]]


def locked(name: str) -> dict[str, Version]:
    """Package -> version, as pinned in a lock."""
    pins = re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / name).read_text(), re.MULTILINE)
    return {package: Version(version) for package, version in pins}


def needed(requirements: list[str], python: str) -> dict[str, list[Requirement]]:
    """Every package that `requirements` come to on Linux with that Python, and what is demanded of it."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    demands: dict[str, list[Requirement]] = {}
    pending = [Requirement(text) for text in requirements]
    while pending:
        requirement = pending.pop()
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        if name not in demands:
            pending += [Requirement(text) for text in requires(name)]
        demands.setdefault(name, []).append(requirement)
    return demands


def requires(name: str) -> list[str]:
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed here, so that its requirements are unknown")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("lock", "requirements"), [(LOCKS[0], RUNTIME), (LOCKS[1], DEV)], ids=LOCKS)
def test_a_lock_is_complete_for_every_python(lock: str, requirements: list[str], python: str) -> None:
    """Each package that is needed on a supported Python is pinned, at a version that all its users accept."""
    pins = locked(lock)

    faults = [
        f"{name}: pinned {pins.get(name)}, needed {requirement}"
        for name, demands in needed(requirements, python).items()
        for requirement in demands
        if name not in pins or not requirement.specifier.contains(pins[name], prereleases=True)
    ]

    assert not faults


@pytest.mark.parametrize("lock", [*LOCKS, SITE, AUDIT, *PEERS])
def test_a_lock_holds_pins_and_hashes_only(lock: str) -> None:
    """A lock is made of exact versions with sha256 hashes: no option, no address, no path."""
    text = (ROOT / lock).read_text()
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]

    assert not [
        line
        for line in lines
        if not re.fullmatch(r"[a-z0-9-]+==\S+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line)
    ]
    assert "://" not in text
    assert len(re.findall(r"== ?\S+ \\\n    --hash", text)) == len(locked(lock))


def test_the_locks_agree() -> None:
    """Tests run with the very versions that the daemon runs with, and the site is made with them."""
    runtime, dev, site = (locked(lock) for lock in [*LOCKS, SITE])

    assert {name: dev.get(name) for name in runtime} == runtime
    assert {name: site.get(name) for name in runtime} == runtime
