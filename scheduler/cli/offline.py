"""Where no daemon answers, what can be read is read from the store: the same answers, with a note on stderr.

The store is opened read-only by `scheduler.store.offline`, and only then are its modules imported: a call
that a daemon answers pays for none of them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from scheduler.cli.connection import Control, NobodyListens, Reply
from scheduler.cli.screen import warn
from scheduler.cli.wording import Json, escape
from scheduler.clock import Micros, SystemClock
from scheduler.errors import DaemonUnreachable, Forbidden, SchedulerError, StoreRefused, StoreUnavailable

T = TypeVar("T")

_OUTPUT: Final = "output"


class FallbackControl(Control):
    """Asks the daemon; from the first time that nobody listens on, the store.

    Args:
        stores: state directories to look at, in order.
    """

    def __init__(self, sockets: Sequence[str], stores: Sequence[Path], *, timeout: Micros) -> None:
        super().__init__(sockets, timeout=timeout)
        self._stores = tuple(stores)
        self._store: _OpenStore | None = None

    @property
    def is_offline(self) -> bool:
        """Answers come from the store."""
        return self._store is not None

    def daemon_alone(self) -> Control:
        """The same daemon, and never the store."""
        return Control(self._sockets, timeout=self.timeout)

    def get(self, path: str, **query: object) -> Reply:
        if self._store is None:
            try:
                return super().get(path, **query)
            except NobodyListens as down:
                self._store = self._opened(down)
        return Reply(body=self._store.answer(path, query))

    def stream(self, path: str, *, patience: Micros | None = None, **query: object) -> Iterator[bytes]:
        if self._store is None:
            try:
                yield from super().stream(path, patience=patience, **query)
            except NobodyListens as down:
                self._store = self._opened(down)
            else:
                return
        yield from self._store.stream(path, query)

    def paused(self) -> Json | None:
        if self._store is None:
            try:
                return super().paused()
            except NobodyListens as down:
                self._store = self._opened(down)
        return self._store.paused()

    def close(self) -> None:
        """The store is closed."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self, down: NobodyListens) -> _OpenStore:
        """The store of the first directory that has one.

        Raises:
            DaemonUnreachable: none has, or the one that has cannot be read.
        """
        state = found_store(self._stores, down)
        try:
            opened = _OpenStore(state)
        except (StoreRefused, StoreUnavailable, Forbidden) as bad:
            raise DaemonUnreachable(f"no daemon answers, and {bad.message}", hint=bad.hint) from bad
        warn(escape(f"no daemon answers: read from the store in {state}, as it was left"))
        return opened


def found_store(stores: Sequence[Path], down: SchedulerError) -> Path:
    """The first of the directories that holds a store.

    Raises:
        DaemonUnreachable: none does; the message begins with that of `down`.
    """
    from scheduler.store.offline import store_exists

    for state in stores:
        try:
            if store_exists(state):
                return state
        except PermissionError as bad:
            raise DaemonUnreachable(
                f"{down.message}, and you may not look into {state}",
                hint="become root or the user of the daemon",
            ) from bad
    looked = ", ".join(map(str, stores))
    raise DaemonUnreachable(f"{down.message}; no store in {looked}", hint=f"{down.hint}, or --state DIR")


class _OpenStore:
    """A store that is read; `close` ends it."""

    def __init__(self, state: Path) -> None:
        import asyncio

        from scheduler.config.settings import local_timezone
        from scheduler.control.offline import OfflineAnswers
        from scheduler.control.ports import OutputFiles
        from scheduler.model.triggers import load_zone
        from scheduler.store.offline import OfflineStore

        self._runner = asyncio.Runner()
        try:
            self._reads = self._run(OfflineStore.open(state))
        except BaseException:
            self._runner.close()
            raise
        zone = load_zone(local_timezone(os.environ)).info
        self._answers = OfflineAnswers(self._reads, OutputFiles(state / _OUTPUT), zone, SystemClock())

    def answer(self, path: str, query: Json) -> Json:
        return self._run(self._answers.answer(unquote(path), query))

    def paused(self) -> Json | None:
        return self._run(self._answers.paused())

    def stream(self, path: str, query: Json) -> Iterator[bytes]:
        from scheduler.model.runs import RunId

        pieces: AsyncIterator[bytes] = self._answers.output(RunId(unquote(path).split("/")[3]), query)
        while (piece := self._run(_next(pieces))) is not None:
            yield piece

    def close(self) -> None:
        self._run(self._reads.close())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
