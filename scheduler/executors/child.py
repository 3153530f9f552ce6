"""The process that runs one handler: `python -P -m scheduler.executors.child REQUEST CHANNEL`.

REQUEST is a descriptor with the call as JSON, CHANNEL a socket to the daemon: JSON lines go out on it
(`loaded`, `broken`, the question for the `wish`, the outcome), answers come in. Arguments travel neither in
argv nor in the environment, where others could read them. SIGTERM lets the handler's `finally` blocks run;
then the process ends by that signal, as a command would.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable
from types import FrameType
from typing import Any, Final

from scheduler.clock import SystemClock
from scheduler.errors import HandlerBroken
from scheduler.executors.context import Call, Channels, Fields, HandlerContext
from scheduler.executors.loading import Handler, load_handler
from scheduler.executors.outcome import of_error, of_return, traceback_of

GONE: Final = "cancel"
"""The wish when the daemon does not answer: nobody waits for this run any more."""


class Terminated(BaseException):
    """SIGTERM has come; raised in the handler so that it can clean up."""


class DaemonLine:
    """The child's end of the channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._answers = channel.makefile("r", encoding="utf-8")
        self._asking = threading.Lock()

    def say(self, line: str) -> None:
        """The daemon has the line, or is gone."""
        try:
            self._channel.sendall(line.encode() + b"\n")
        except OSError:
            return

    def ask_wish(self) -> str:
        """What the operator wants of this run now; `GONE` where nobody answers."""
        with self._asking:
            self.say('{"ask": "wish"}')
            try:
                return self._answers.readline().strip() or GONE
            except OSError:
                return GONE


def main() -> None:
    """The handler has run and the daemon knows what came of it; ends the process by SIGTERM if one came."""
    request, channel = (int(word) for word in sys.argv[1:3])
    for descriptor in (request, channel):
        os.set_inheritable(descriptor, False)  # what the handler starts gets neither
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    daemon = DaemonLine(socket.socket(fileno=channel))
    with os.fdopen(request, encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _serve(order, daemon)
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGTERM)


def _serve(order: dict[str, Any], daemon: DaemonLine) -> None:
    try:
        handler = load_handler(order["handler"], order["python_path"])
    except HandlerBroken as error:
        if isinstance(error.__cause__, Terminated):
            raise error.__cause__ from None
        if error.__cause__ is not None:
            _to_stderr(traceback_of(error.__cause__))
        daemon.say(json.dumps({"broken": error.message}))
        return
    daemon.say('{"loaded": true}')
    channels = Channels(tell=_tell_progress, wish=daemon.ask_wish, write=_to_stderr)
    context = HandlerContext(Call(**order["call"]), channels, SystemClock())
    try:
        outcome = of_return(_run(handler, context))
    except Terminated:
        raise
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: failures both
        outcome = of_error(error)
        _to_stderr(traceback_of(error))
    sys.stdout.flush()
    daemon.say(outcome.to_json())


def _run(handler: Handler, context: HandlerContext) -> object:
    value = handler(context, **context.args)
    return _finish(value) if inspect.isawaitable(value) else value


def _finish(value: Awaitable[object]) -> object:
    """The result of an async handler on a loop of its own, where SIGTERM is a cancel."""
    import asyncio  # noqa: PLC0415 - half of a child's start-up time, and most handlers do without

    terminated = False

    async def supervised() -> object:
        nonlocal terminated
        task = asyncio.ensure_future(value)

        def cancel() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
        return await task

    try:
        return asyncio.run(supervised())
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise


def _tell_progress(fields: Fields) -> None:
    _write_all(int(os.environ["SCHEDULER_PROGRESS_FD"]), json.dumps(fields).encode() + b"\n")


def _to_stderr(data: bytes) -> None:
    sys.stderr.flush()
    _write_all(2, data)


def _write_all(descriptor: int, data: bytes) -> None:
    """The bytes are written, or nobody reads them any more."""
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # Once: a second one must not cut short what the first one has set off.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    raise Terminated


if __name__ == "__main__":
    main()
