"""`completion`: the script that teaches a shell to complete verbs, options, and the ids of jobs and runs."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from scheduler.cli.screen import Screen

VARIABLE: Final = "_SCHEDCTL_COMPLETE"
"""Set by the script when it asks: what is asked for, in the words of click."""

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_verb(context: click.Context, shell: str) -> int:
    """Print the script for SHELL; ids are asked of the daemon at each completion, for a second at most.

    bash: schedctl completion bash > /etc/bash_completion.d/schedctl (or ~/.bash_completion).
    zsh: schedctl completion zsh > a file _schedctl in a folder of $fpath.
    fish: schedctl completion fish > ~/.config/fish/completions/schedctl.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click knows the three
    script = kind(context.find_root().command, {}, "schedctl", VARIABLE).source()
    if shell == "fish":  # a description may have commas, and is cut at the first of them otherwise
        script = script.replace('string split ","', 'string split --max 1 ","')
    Screen().raw(script.rstrip("\n") + "\n")
    return 0
