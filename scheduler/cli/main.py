"""The door of schedctl: verbs, and what an error is turned into.

A verb's module is imported when the verb is called, so that each call pays for itself alone. Whatever goes
wrong is one line on stderr (what, and what to do) and an exit code: 0 done, 1 the run failed or checks found
faults, 2 usage, 3 not found, 4 conflict, 5 forbidden, 6 daemon not reachable, 7 timeout.
"""

# ruff: noqa: ARG002 - click says what its methods are handed

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from scheduler import __version__
from scheduler.cli.screen import leave_quietly, tell, warn
from scheduler.cli.wording import escape
from scheduler.errors import SchedulerError

_PROGRAM: Final = "schedctl"

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "status": ("status", "Tell how the daemon is."),
    "list": ("jobs", "List jobs: state, next fire, last run, live runs."),
    "show": ("show", "Show one job or one run, whole."),
    "next": ("times", "Tell when a job, or a schedule not yet used, fires."),
    "why": ("times", "Tell the one reason why a job does not run, and when it can."),
    "run": ("start", "Start jobs now."),
    "pause": ("operate", "Pause jobs: no fire until resumed."),
    "resume": ("operate", "Resume paused and failed jobs from now."),
    "skip-next": ("operate", "Leave out the next fires of jobs."),
    "cancel": ("runs", "Cancel runs, or what runs of a job."),
    "retry": ("runs", "Run ended runs again."),
    "retry-now": ("runs", "Let runs that wait for their retry go on at once."),
    "runs": ("runs", "List runs, newest first."),
    "items": ("items", "List the items of a batch run."),
    "item": ("items", "Say what became of an item of a batch."),
    "watch": ("watch", "Watch what goes on, live; or follow one run to its end."),
    "events": ("events", "Show what happens: the daemon's transitions."),
    "output": ("output", "Print what a run wrote."),
    "audit": ("audit", "List what operators did to a job."),
    "add": ("definitions", "Create a job from a file."),
    "edit": ("definitions", "Edit the definition of a job, in an editor or from a file."),
    "remove": ("definitions", "Remove jobs."),
    "reload": ("config", "Let the daemon read its job files again."),
    "check": ("config", "Find faults of configuration and job files, without a daemon."),
    "import": ("crontab", "Take over schedules from elsewhere."),
    "doctor": ("doctor", "Look for what is wrong, and name the remedy."),
    "backup": ("backup", "Copy the store into a file."),
    "restore": ("backup", "Put a copy in the place of the store."),
    "completion": ("completion", "Print the script that teaches a shell to complete."),
}
"""Verb -> module of this package, and its line in the help."""


class _Verbs(click.Group):
    """A group whose verbs are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"scheduler.cli.{_VERBS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_verb")
        assert isinstance(command, click.Command)  # noqa: S101  the table above names commands only
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _VERBS or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], _VERBS, n=1)
        advice = f", did you mean {near[0]}?" if near else ""
        raise click.UsageError(f"there is no verb {args[0]}{advice}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        fitting = [name for name in _VERBS if name.startswith(incomplete)]
        verbs = [CompletionItem(name, help=_VERBS[name][1]) for name in fitting]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in _VERBS.items()])


@click.group(
    _PROGRAM, cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name=_PROGRAM, message="%(prog)s %(version)s")
def schedctl() -> None:
    """Talk to schedulerd, the scheduler daemon of this host.

    Jobs are chosen by id, by glob ('export-*'), with --group, or with --all. Every verb but
    completion takes --json, --socket PATH (or SCHEDULER_SOCKET) and --timeout, after its name.

    Exit codes: 0 done, 1 the run failed or checks found faults, 2 usage, 3 not found, 4 conflict or already
    running, 5 forbidden, 6 daemon not reachable, 7 timeout.

    list, show, runs, output, next and why read the store where no daemon answers (--state DIR).

    Completion of verbs and ids: eval "$(schedctl completion bash)" in bash, likewise zsh and fish.
    """


def main() -> None:
    """The process ends with the exit code of the verb that its arguments name."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The verb has been carried out, or its error told on stderr; the exit code is returned."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a glyph that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        return _invoke(arguments)
    except BrokenPipeError:
        leave_quietly()
        return 128 + signal.SIGPIPE
    except (KeyboardInterrupt, click.Abort):
        warn("stopped by Ctrl-C; what was asked for already goes on")
        return 128 + signal.SIGINT


def _invoke(arguments: Sequence[str]) -> int:
    if "_SCHEDCTL_COMPLETE" in os.environ:
        schedctl.main(list(arguments), prog_name=_PROGRAM)  # answers the shell and exits
    try:
        with schedctl.make_context(_PROGRAM, list(arguments)) as context:
            code = schedctl.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as bare:
        sys.stderr.write(bare.format_message() + "\n")
        return bare.exit_code
    except click.ClickException as usage:
        warn(_usage(usage, arguments))
        return 2
    except SchedulerError as error:
        tell(error)
        return error.exit_code
    return int(code or 0)


def _usage(error: click.ClickException, arguments: Sequence[str]) -> str:
    context = getattr(error, "ctx", None)
    place = _verb(arguments) if context is None else context.command_path
    said = escape(" ".join(error.format_message().split()).rstrip("."))
    if isinstance(error, click.NoSuchOption) and (context is None or context.parent is None):
        said = f"no option {escape(error.option_name)} before a verb, write it after the verb"
    return f"{said}; `{place} --help` tells how it is used"


def _verb(arguments: Sequence[str]) -> str:
    """The verb that the arguments begin with, for an error that does not know its own."""
    command: click.Command | None = schedctl
    path = [_PROGRAM]
    for word in arguments:
        command = (
            command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        )
        if command is None:
            break
        path.append(word)
    return " ".join(path)
