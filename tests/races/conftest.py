from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scheduler.store.schema import prepare
from scheduler.store.sqlite import FILE_NAME


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store that every race copies: there are many races."""
    path = tmp_path_factory.mktemp("new") / FILE_NAME
    prepare(path)
    return path


@pytest.fixture
def path(new_store: Path, tmp_path: Path) -> Path:
    """The one file that every store of a race opens."""
    return Path(shutil.copy(new_store, tmp_path))
