"""A handler that is imported already is found without a thread, and without running any code."""

from __future__ import annotations

import json
import sys

import pytest

from scheduler.executors.loading import loaded_handler


def test_function_of_an_imported_module_is_found() -> None:
    """What the module has by that name is the handler."""
    assert loaded_handler("json:dumps") is json.dumps


@pytest.mark.parametrize("spec", ["json:nothing", "json:decoder", "not_imported_yet:run", "json"])
def test_what_is_not_plainly_there_is_left_to_the_import(spec: str) -> None:
    """A missing name, a module, a module to come, a word without a name: the import has the say."""
    assert loaded_handler(spec) is None


def test_stand_in_for_a_module_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may put an object of its own in the place of its module; its attributes may run code."""

    class StandIn:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was looked at on the loop")

    monkeypatch.setitem(sys.modules, "stand_in", StandIn())

    assert loaded_handler("stand_in:run") is None
