"""One notice to its receiver, once: a ping, a webhook, or a command."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from scheduler.clock import MINUTE, SECOND, Micros
from scheduler.engine.alerts import Alert, PingCall
from scheduler.executors.hook_command import run_hook
from scheduler.executors.http_call import call
from scheduler.model.alerts import HookCommand, Webhook

HTTP_TIMEOUT: Final[Micros] = 10 * SECOND
COMMAND_TIMEOUT: Final[Micros] = MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Messenger:
    """`Courier` on the network and on this machine.

    Attributes:
        http_timeout: for one request, from the name's resolution to the status line.
        command_timeout: for one command.
        tls: makes the context of TLS connections.
        socket: of the control API, told to commands; empty: it is not.
    """

    http_timeout: Micros = HTTP_TIMEOUT
    command_timeout: Micros = COMMAND_TIMEOUT
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    socket: str = ""

    async def ping(self, notice: PingCall) -> None:
        url = with_run(notice.url, notice.run_id)
        await call("GET", url, None, timeout=self.http_timeout, tls=self.tls)

    async def alert(self, notice: Alert) -> None:
        match notice.hook:
            case Webhook(url=url):
                body = json.dumps(dict(notice.facts), ensure_ascii=False).encode()
                await call("POST", url, body, timeout=self.http_timeout, tls=self.tls)
            case HookCommand(argv=argv):
                await run_hook(argv, notice, socket=self.socket, timeout=self.command_timeout)


def with_run(url: str, run_id: str | None) -> str:
    """The URL with `rid`, which names the run to a service in the style of healthchecks.

    A `rid` that the author wrote himself stays the only one.
    """
    parts = urlsplit(url)
    if run_id is None or any(name == "rid" for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        return url
    query = "&".join(part for part in (parts.query, urlencode({"rid": run_id})) if part)
    return parts._replace(query=query).geturl()
