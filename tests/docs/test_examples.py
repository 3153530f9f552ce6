"""The examples on the pages are true: job files parse, Python compiles and its handlers load."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from scheduler.config.jobfile import parse_jobs
from scheduler.config.paths import config_file
from scheduler.config.settings import Settings, load_settings
from tests.docs.support.pages import Block, blocks, commands

_TOML = blocks("toml")
_PYTHON = blocks("python")


def is_job_file(block: Block) -> bool:
    return "jobs" in tomllib.loads(block.text) and "[jobs." in block.text


def settings_shown(page: str, folder: Path) -> Settings:
    """What a reader has who copies every `scheduler.toml` of the page, and nothing else."""
    groups: dict[str, int] = {}
    calendars: dict[str, tuple[str, ...]] = {}
    for block in _TOML:
        if block.page == page and not is_job_file(block):
            (folder / "scheduler.toml").write_text(block.text, encoding="utf-8")
            shown = load_settings(config_file(folder / "scheduler.toml", {}), {})
            groups |= shown.groups
            calendars |= shown.calendars
    return Settings(timezone="UTC", groups=groups, calendars=calendars)


@pytest.mark.parametrize("block", [block for block in _TOML if is_job_file(block)], ids=str)
def test_job_files_parse(block: Block, tmp_path: Path) -> None:
    """A job file of the documentation is one that the daemon takes, with the settings on its page alone."""
    definitions, faults = parse_jobs(block.text, str(block), settings_shown(block.page, tmp_path))

    assert not faults
    assert definitions


@pytest.mark.parametrize("block", [block for block in _TOML if not is_job_file(block)], ids=str)
def test_settings_parse(block: Block, tmp_path: Path) -> None:
    """A `scheduler.toml` of the documentation is one that the daemon starts with."""
    (tmp_path / "scheduler.toml").write_text(block.text, encoding="utf-8")

    load_settings(config_file(tmp_path / "scheduler.toml", {}), {})


@pytest.mark.parametrize("block", _PYTHON, ids=str)
def test_python_examples_import(block: Block, tmp_path: Path) -> None:
    """A Python example is a module that can be imported, and all its names exist."""
    path = tmp_path / "example.py"
    path.write_text(block.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None

    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_handlers_of_the_examples_are_on_the_page() -> None:
    """A handler that an example job names is a function of a Python example on the same page."""
    named = {
        (block.page, handler.partition(":")[2])
        for block in _TOML
        if is_job_file(block)
        for job in tomllib.loads(block.text)["jobs"].values()
        if (handler := job.get("python"))
    }
    shown = {
        (block.page, function)
        for block in _PYTHON
        for function in re.findall(r"^(?:async )?def (\w+)", block.text, re.MULTILINE)
    }

    assert named
    assert named <= shown


def test_bodies_of_curl_examples_are_json() -> None:
    """What an example sends with `-d` is a JSON object."""
    sent = [(block, body) for block, line in commands() for body in re.findall(r"-d '([^']*)'", line)]

    assert sent
    assert all(isinstance(json.loads(body), dict) for _, body in sent)


def test_answers_of_curl_examples_are_json() -> None:
    """A line of an answer that begins as an object is a whole one: nothing was cut out of it."""
    answers = [
        line for block in blocks("console") for line in block.text.splitlines() if line.startswith("{")
    ]

    assert answers
    assert all(isinstance(json.loads(line), dict) for line in answers)


def test_examples_were_not_made_here() -> None:
    """No page shows the folder or the user of the machine on which its examples ran."""
    here = {str(Path(__file__).parents[2]), os.environ.get("VIRTUAL_ENV") or "/.venv/lib"}
    found = [str(block) for block in blocks("console") if any(place in block.text for place in here)]

    assert not found
