"""Writes build/man/man1/*.1: the manual pages of schedctl, one for the program and one for each verb.

    python scripts/manpages.py [FOLDER]

They say what `--help` says, from the same objects, so neither can be out of date alone.

Source: man(7), groff_man(7); escapes of groff_char(7).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from scheduler import __version__
from scheduler.cli.main import schedctl

FOLDER: Final = Path(__file__).parents[1] / "build" / "man"
_SECTION: Final = "1"


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of every page."""
    with click.Context(schedctl, info_name="schedctl") as root:
        yield "schedctl", _program(root)
        for name in schedctl.list_commands(root):
            command = schedctl.get_command(root, name)
            if command is None:
                continue
            yield f"schedctl-{name}", _verb(command, name, root)


def main() -> int:
    """Writes all pages below the folder; the exit code is returned."""
    folder = (Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER) / f"man{_SECTION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / f"{name}.{_SECTION}").write_text(text, encoding="utf-8")
    print(f"written: {folder}")
    return 0


def _program(root: click.Context) -> str:
    verbs: list[str] = []
    for name in schedctl.list_commands(root):
        command = schedctl.get_command(root, name)
        short = "" if command is None else command.get_short_help_str(200)
        verbs += [".TP", f"\\fB{_escaped(f'schedctl-{name}')}\\fR(1)", _escaped(short)]
    return "\n".join(
        [
            *_head("schedctl", "talk to schedulerd, the scheduler daemon of this host"),
            ".SH SYNOPSIS",
            "\\fBschedctl\\fR \\fIVERB\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...",
            ".SH DESCRIPTION",
            *_paragraphs(schedctl.help or ""),
            ".SH VERBS",
            *verbs,
            ".SH ENVIRONMENT",
            *_term("SCHEDULER_SOCKET", "The daemon's control socket, as --socket."),
            *_term("SCHEDULER_STATE", "The state directory to read where no daemon answers, as --state."),
            *_term("NO_COLOR", "Set to anything: no colours."),
            *_term("VISUAL, EDITOR", "What schedctl edit opens."),
            ".SH SEE ALSO",
            "\\fBsystemctl\\fR(1), \\fBcrontab\\fR(5)",
            "",
        ]
    )


def _verb(command: click.Command, name: str, root: click.Context) -> str:
    whole = f"schedctl {name}"
    with click.Context(command, info_name=name, parent=root) as context:
        usage = " ".join(command.collect_usage_pieces(context))
        options = [
            record
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context))
        ]
        lines = [
            *_head(f"schedctl-{name}", command.get_short_help_str(200)),
            ".SH SYNOPSIS",
            f"\\fB{_escaped(whole)}\\fR {_escaped(usage)}",
            ".SH DESCRIPTION",
            *_paragraphs(command.help or ""),
            ".SH OPTIONS",
            *(line for flags, text in options if text for line in _term(flags, text)),
        ]
        if isinstance(command, click.Group):
            lines += [".SH VERBS", *_children(command, context)]
    return "\n".join([*lines, ".SH SEE ALSO", "\\fBschedctl\\fR(1)", ""])


def _children(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        if child is None:
            continue
        with click.Context(child, info_name=name, parent=context) as inner:
            usage = " ".join(child.collect_usage_pieces(inner))
            yield from _term(f"{name} {usage}", child.get_short_help_str(400))
            for parameter in child.get_params(inner):
                if record := parameter.get_help_record(inner):
                    yield from (".RS", *_term(*record), ".RE")


def _head(name: str, purpose: str) -> list[str]:
    return [
        f'.TH "{_escaped(name.upper())}" "{_SECTION}" "" "schedulerd {__version__}" "schedulerd manual"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(purpose.rstrip('.'))}",
    ]


def _term(flags: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_escaped(flags)}\\fR", _escaped(text)]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines += [".PP", _escaped(" ".join(paragraph.split()))]
    return lines


def _escaped(text: str) -> str:
    """The text as roff shows it: nothing in it is a request or an escape."""
    shown = (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
    )
    return f"\\&{shown}" if shown.startswith(".") else shown


if __name__ == "__main__":
    sys.exit(main())
