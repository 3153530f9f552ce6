"""The pages as a whole: links lead somewhere, and what they name exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from scheduler.cli.main import schedctl
from tests.docs.support.pages import PAGES, ROOT, anchors, code_words, commands, links, name, prose

_PAGE = pytest.mark.parametrize("page", PAGES, ids=name)
_PROGRAMS: Final = {"schedctl", "schedulerd", "make", "curl", "kill", "pgrep", "export", "python3", "sleep"}
_SEPARATORS: Final = {"|", "||", "&&", ";"}


@_PAGE
def test_links_between_pages_resolve(page: Path) -> None:
    """Each link to a page or file of the project leads to one that exists, and to a heading that is on it."""
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        if not place.is_file() or (anchor and anchor not in anchors(place)):
            broken.append(link)

    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    """Whoever begins at the README and follows links finds every page of docs/."""
    reached, pending = set(), [ROOT / "README.md"]
    while pending:
        page = pending.pop()
        if page in PAGES and page not in reached:
            reached.add(page)
            pending += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]

    assert reached == set(PAGES)


def test_every_page_stands_in_the_index() -> None:
    """The index links every page of docs/ itself: what it leaves out is not in the contents of the site."""
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}

    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index} <= linked


@_PAGE
def test_files_that_are_named_exist(page: Path) -> None:
    """A path of the sources or the configuration that stands in backticks is there."""
    named = [word for word in code_words(prose(page)) if re.match(r"(scheduler|config|tests|docs)/", word)]

    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_picture_names_modules_that_exist() -> None:
    """Each module in the picture of one fire is a file of the package."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    picture = re.search(r"```mermaid\n(.*?)```", text, re.DOTALL)
    assert picture is not None
    named = re.findall(r"[a-z]+/[a-z_]+\.py", picture[1])

    assert len(named) > 10
    assert not [path for path in named if not (ROOT / "scheduler" / path).is_file()]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell line, assignments before it left out."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            if words:
                yield words
            words = []
        else:
            words.append(word)


def test_every_command_of_a_session_is_a_known_program() -> None:
    """The terminal sessions use our programs and a few that every machine has."""
    found = {words[0] for _, line in commands() for words in simple_commands(line)}

    assert {"schedctl", "make", "curl"} <= found
    assert not {Path(word).name for word in found} - _PROGRAMS - {"grep", "pip", "mkdir", "sed", "true"}


def schedctl_lines() -> list[tuple[str, list[str]]]:
    """Every line of schedctl that the pages show: in a session, or in backticks."""
    shown = [(str(block), words) for block, line in commands() for words in simple_commands(line)]
    for page in PAGES:
        for word in code_words(prose(page)):
            if word.startswith("schedctl "):
                shown += [(name(page), words) for words in simple_commands(word.replace("…", "words"))]
    return [(place, words[1:]) for place, words in shown if words[0] == "schedctl"]


def complaint(arguments: list[str]) -> str | None:
    """What schedctl has against the shape of these arguments; nothing is asked of a daemon."""
    with click.Context(schedctl, info_name="schedctl") as above:
        command: click.Command | None = schedctl
        context, rest = above, arguments
        while isinstance(command, click.Group):
            if not rest:
                return "no verb"
            verb, *rest = rest
            if verb.startswith("-"):
                return None
            command = command.get_command(context, verb)
            if command is None:
                return f"no verb {verb}"
            context = click.Context(command, parent=context, info_name=verb)
        assert command is not None
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
        unknown = [option for option in options if option not in known]
        return f"no option {', '.join(unknown)}" if unknown else None


def test_every_verb_and_option_of_schedctl_that_is_shown_exists() -> None:
    """A reader who copies a line of schedctl is not told that there is no such verb or option."""
    lines = schedctl_lines()

    assert len(lines) > 40
    assert not [f"{place}: {words}: {why}" for place, words in lines if (why := complaint(words))]


def test_the_check_of_verbs_sees_a_wrong_one() -> None:
    """The check above is one that can fail: a verb and an option that do not exist are found."""
    assert complaint(["pauze", "agent"]) == "no verb pauze"
    assert complaint(["pause", "agent", "--because", "x"]) == "no option --because"
    assert complaint(["import", "crontab", "FILE"]) is None


def test_the_flags_of_schedulerd_that_are_shown_exist() -> None:
    """Each flag of schedulerd on the pages is one that it takes."""
    found = set()
    for page in PAGES:
        for word in code_words(prose(page)):
            if word.startswith("schedulerd -"):
                found |= {part for part in word.split()[1:] if part.startswith("--")}

    told = subprocess.run(
        [sys.executable, "-m", "scheduler.daemon", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--check" in found
    assert not {flag for flag in found if not re.search(rf"{flag}\b", told.stdout)}


def test_the_targets_of_make_that_are_shown_exist() -> None:
    """Each target of make on the pages stands in the Makefile."""
    text = "\n".join([*(prose(page) for page in PAGES), *(line for _, line in commands())])
    targets = set(re.findall(r"(?:`|^)make ([a-z]+)\b", text, re.MULTILINE))

    assert {"run", "test"} <= targets
    for target in targets:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)


@_PAGE
def test_pages_leave_nothing_to_be_done(page: Path) -> None:
    """No page holds the sign of something that is still to be written."""
    assert not re.search(r"\b(TODO|TBD|FIXME|coming soon)\b", prose(page), re.IGNORECASE)
