"""Writes the manual pages below build/man: schedulerd(8), schedctl(1), and one for each verb of schedctl.

    python scripts/manpages.py [FOLDER]

They say what `--help` says, from the same objects, so neither can be out of date alone.

Source: man(7), groff_man(7); escapes of groff_char(7).
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from scheduler import __version__
from scheduler.cli.main import schedctl
from scheduler.daemon import FILES, VARIABLES, parser

FOLDER: Final = Path(__file__).parents[1] / "build" / "man"
_USER: Final = "1"
_ADMIN: Final = "8"
_STOP: Final = (
    "Stop in order: nothing new starts, live runs get drain_timeout, every outcome is recorded."
    " A second one ends the wait."
)
_SIGNALS: Final = {"SIGTERM, SIGINT": _STOP, "SIGHUP": "Read the job files again, as schedctl reload does."}
_EXITS: Final = {
    "0": "It stopped in order, or --check found nothing.",
    "1": "It could not start, or something essential ended, or --check found faults.",
    "2": "Usage.",
}


def pages() -> Iterator[tuple[str, str]]:
    """Name with section, and text, of every page."""
    yield f"schedulerd.{_ADMIN}", _daemon(parser())
    with click.Context(schedctl, info_name="schedctl") as root:
        yield f"schedctl.{_USER}", _program(root)
        for name in schedctl.list_commands(root):
            command = schedctl.get_command(root, name)
            if command is None:
                continue
            yield f"schedctl-{name}.{_USER}", _verb(command, name, root)


def main() -> int:
    """Writes all pages below the folder; the exit code is returned."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, text in pages():
        place = folder / f"man{name[-1]}" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    print(f"written: {folder}")
    return 0


def _daemon(flags: argparse.ArgumentParser) -> str:
    actions = flags._actions  # noqa: SLF001 - argparse tells its options nowhere else
    usage = " ".join(f"[{_option(action, action.option_strings[-1:])}]" for action in actions)
    return "\n".join(
        [
            *_head("schedulerd", "the scheduler daemon of this host", _ADMIN),
            ".SH SYNOPSIS",
            f"\\fBschedulerd\\fR {_escaped(usage)}",
            ".SH DESCRIPTION",
            *_paragraphs(flags.description or ""),
            ".SH OPTIONS",
            *(
                line
                for action in actions
                for line in _term(_option(action, action.option_strings), action.help or "")
            ),
            ".SH SIGNALS",
            *(line for name, text in _SIGNALS.items() for line in _term(name, text)),
            ".SH FILES",
            *(line for name, text in FILES.items() for line in _term(name, text)),
            ".SH ENVIRONMENT",
            *(line for name, text in VARIABLES.items() for line in _term(name, text)),
            ".SH EXIT STATUS",
            *(line for code, text in _EXITS.items() for line in _term(code, text)),
            ".SH SEE ALSO",
            "\\fBschedctl\\fR(1)",
            "",
        ]
    )


def _option(action: argparse.Action, names: Sequence[str]) -> str:
    return " ".join([", ".join(names), *([str(action.metavar)] if action.metavar else [])])


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
            "\\fBschedulerd\\fR(8), \\fBsystemctl\\fR(1), \\fBcrontab\\fR(5)",
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


def _head(name: str, purpose: str, section: str = _USER) -> list[str]:
    return [
        f'.TH "{_escaped(name.upper())}" "{section}" "" "schedulerd {__version__}" "schedulerd manual"',
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
        .replace("~", "\\(ti")
    )
    return f"\\&{shown}" if shown.startswith(".") else shown


if __name__ == "__main__":
    sys.exit(main())
