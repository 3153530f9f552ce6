"""The pages of the documentation as data: their fenced blocks, tables, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the page it stands on, the line of its first line, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(language: str) -> list[Block]:
    """Every block of this language on every page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match[1] == language:
                line = text.count("\n", 0, match.start()) + 2
                found.append(Block(name(page), line, language, match[2]))
    return found


def links(page: Path) -> Iterator[str]:
    """The targets of the page's links, those to other sites left out."""
    for match in _LINK.finditer(prose(page)):
        if "://" not in match[1] and not match[1].startswith("mailto:"):
            yield match[1]


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings as GitHub and most generators write them."""
    slugs = set()
    for match in _HEADING.finditer(prose(page)):
        plain = re.sub(r"[^\w\- ]", "", match[1].lower())
        slugs.add(plain.strip().replace(" ", "-"))
    return slugs


def commands() -> Iterator[tuple[Block, str]]:
    """Each command line of a terminal session, without its prompt and comment."""
    for block in blocks("console"):
        for line in block.text.splitlines():
            if line.startswith("$ "):
                yield block, re.sub(r"\s{2,}# .*$", "", line[2:])


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, up to the next one of any level; heads left out."""
    text = prose(page)
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert start is not None, f"{name(page)} has no heading {heading!r}"
    rest = text[start.end() :]
    end = _HEADING.search(rest)
    lines = rest[: end.start() if end else len(rest)].splitlines()
    tables = [line for line in lines if line.startswith("|")]
    bodies = [line for number, line in enumerate(tables) if not _is_head(tables, number)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in bodies]


def _is_head(lines: list[str], number: int) -> bool:
    rule = re.compile(r"\|( -+ \|)+")
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return bool(rule.fullmatch(lines[number]) or rule.fullmatch(following))


def code_words(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)
