"""The list of a batch's items, from the job file, a JSON lines file, or a command's output.

The list is streamed: neither the file nor the command's output is ever in memory as a whole. What a command
prints is spooled to disk first, so that a command that fails at its end leaves no half a list behind.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from scheduler.engine.ports import AttemptHooks, Ended, EndKind, Execution, Executor
from scheduler.errors import Invalid, SpawnFailed
from scheduler.executors.accounts import account_of, looking_as
from scheduler.executors.output import Output, Stream
from scheduler.executors.program import find_directory
from scheduler.executors.surroundings import Surroundings
from scheduler.executors.threads import off_loop
from scheduler.model.items import LARGEST_ITEM, MOST_ITEMS, FrozenItem, freeze
from scheduler.model.jobs import BatchPolicy, CommandAction, JobDefinition, JsonValue
from scheduler.model.runs import Grant

SLICE: Final = 1_000
_SLICE_BYTES: Final = 512 * 1024
_LONGEST_LINE: Final = 2 * LARGEST_ITEM
"""An item may be written with blanks and escapes that its compact form does not have."""


class ListFailed(Exception):
    """The items could not be listed; carries the end of the attempt that says why."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.ended = Ended(kind=EndKind.LIST_FAILED, message=message, exit_code=exit_code)


class ItemSource:
    """Slices of the frozen list, in order; each is read off the loop."""

    def __init__(self, name: str, values: Iterator[JsonValue], close: Callable[[], None]) -> None:
        self._name = name
        self._items = _frozen(values)
        self.close = close

    async def next_slice(self) -> list[FrozenItem]:
        """The next items; none at the end of the list.

        Raises:
            ListFailed: one of them is no item, or there are too many.
        """
        try:
            return await off_loop(lambda: _take(self._items))
        except (Invalid, OSError, ValueError) as error:
            hint = f" ({error.hint})" if isinstance(error, Invalid) and error.hint else ""
            raise ListFailed(f"{self._name}: {error}{hint}") from error


def _frozen(values: Iterator[JsonValue]) -> Iterator[FrozenItem]:
    for index, value in enumerate(values):
        if index >= MOST_ITEMS:
            raise Invalid(f"more than {MOST_ITEMS:,} items: split the list")
        yield freeze(index, value)


def _take(items: Iterator[FrozenItem]) -> list[FrozenItem]:
    taken: list[FrozenItem] = []
    size = 0
    for item in islice(items, SLICE):
        taken.append(item)
        size += len(item.payload)
        if size >= _SLICE_BYTES:
            break
    return taken


def open_listed(policy: BatchPolicy) -> ItemSource:
    """The items that stand in the definition."""
    return ItemSource("items", iter(policy.items or ()), lambda: None)


async def open_file(definition: JobDefinition, around: Surroundings) -> ItemSource:
    """The items in the job's file; a relative path starts from the job's `cwd`, or the home directory.

    Raises:
        ListFailed: it cannot be opened.
    """
    name = (definition.batch or BatchPolicy()).items_file or ""

    def open_it() -> BinaryIO:
        account = around.account if definition.user is None else account_of(definition.user)
        home = definition.env.get("HOME", account.home)
        with looking_as(account.identity):
            return (Path(find_directory(definition.cwd, home, who=account.who)) / name).open("rb")

    try:
        file = await off_loop(open_it)
    except (OSError, ValueError, SpawnFailed) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ListFailed(f"items_file {name} cannot be read: {reason}") from error
    return ItemSource(f"items_file {name}", _lines(file), file.close)


class CommandList:
    """The command that lists a job's items, and what it has printed."""

    def __init__(self, execution: Execution, spool: BinaryIO, name: str) -> None:
        self.execution = execution
        self._spool = spool
        self._name = name

    async def source(self) -> ItemSource:
        """The items that the command printed, once it has ended well.

        Raises:
            ListFailed: it has not.
        """
        ended = await self.execution.wait()
        if ended.kind is not EndKind.EXITED or ended.exit_code != 0:
            self._spool.close()
            raise ListFailed(_said(self._name, ended), ended.exit_code)
        self._spool.seek(0)
        return ItemSource(f"items_command {self._name}", _lines(self._spool), self._spool.close)


async def start_command(
    grant: Grant,
    hooks: AttemptHooks,
    executor_with: Callable[[Callable[[Grant], Output]], Executor],
    around: Surroundings,
) -> CommandList:
    """The job's `items_command` runs; its stdout goes to the disk, its stderr to the output of the run.

    Raises:
        ListFailed: it cannot be started.
    """
    argv = (grant.definition.batch or BatchPolicy()).items_command or ()
    try:
        spool = await off_loop(lambda: _open_spool(around.output_dir))
    except OSError as error:
        raise ListFailed(f"the items cannot be kept on disk: {error.strerror}") from error
    marked = around.output

    def output(of: Grant) -> Output:
        assert marked is not None  # noqa: S101 - a batch has its output
        return _Spooled(spool, marked(of))

    definition = replace(grant.definition, action=CommandAction(argv=argv), stdin=None)
    try:
        execution = await executor_with(output).start(replace(grant, definition=definition), hooks)
    except SpawnFailed as error:
        spool.close()
        raise ListFailed(f"items_command: {error.message}") from error
    return CommandList(execution, spool, argv[0])


def _open_spool(directory: Path) -> BinaryIO:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory)


class _Spooled:
    """stdout to the spool, stderr to the output. Fulfils `Output`."""

    def __init__(self, spool: BinaryIO, output: Output) -> None:
        self._spool = spool
        self._output = output

    def write(self, stream: Stream, data: bytes) -> None:
        if stream is Stream.STDOUT:
            self._spool.write(data)
        else:
            self._output.write(stream, data)

    def close(self) -> None:
        self._output.close()


def _said(name: str, ended: Ended) -> str:
    if ended.kind is EndKind.SIGNALLED:
        return f"items_command {name} was killed by signal {ended.signal}; no item was begun"
    return f"items_command {name} {ended.message or f'exited with code {ended.exit_code}'}; no item was begun"


def _lines(file: BinaryIO) -> Iterator[JsonValue]:
    """The values of a JSON lines file; blank lines are none."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise Invalid(
                f"line {number} has more than {_LONGEST_LINE} bytes, an item has {LARGEST_ITEM} at most",
                hint="keep what is large in a file and let the item name the file",
            )
        if not line.strip():
            continue
        try:
            value: JsonValue = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"line {number} is no JSON: {error}") from error
        yield value
