"""The collection of stories: each is a test that bears its number, or is explained in docs/stories.md."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "stories.md"


def ids() -> set[str]:
    lines = (ROOT / "tests" / "cases" / "bugs-public.jsonl").read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["id"] for line in lines}


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def proved() -> dict[str, str]:
    """Story -> what its test says, for every test in this folder whose name begins with a number."""
    found = {}
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in functions(path):
            if named := re.match(r"test_(b\d+)_", node.name):
                found[named[1].upper()] = ast.get_docstring(node) or ""
    return found


def rows() -> dict[str, str]:
    """Story -> what the page says of it."""
    return dict(re.findall(r"^\| (B\d+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_story_is_told() -> None:
    """No story of the collection is left out, and none is invented."""
    assert {*proved(), *rows()} == ids()


def test_a_story_of_the_page_has_no_test_here() -> None:
    """The page explains what stands elsewhere or cannot be; it does not repeat what is tested here."""
    assert not proved().keys() & rows().keys()


def test_what_is_tested_elsewhere_exists() -> None:
    """A test that the page names is there, by file and name."""
    missing = []
    for story, text in rows().items():
        named = re.findall(r"`(test_\w+)`", text)
        there = {
            node.name for file in re.findall(r"`(tests/[\w/]+\.py)`", text) for node in functions(ROOT / file)
        }
        assert named or "cannot apply" in text, story
        missing += [f"{story}: {name}" for name in named if name not in there]

    assert not missing


def test_each_says_its_number() -> None:
    """The docstring of a story's test begins with the story."""
    assert [story for story, text in proved().items() if not text.startswith(f"{story}: ")] == []
