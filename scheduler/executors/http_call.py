"""One HTTP request whose answer is its status: on the loop's own streams, ended whole at one deadline.

Chosen over urllib in a thread, whose timeout is one of each read: a receiver that drips would hold a thread
for ever, here the deadline takes in name, connection, TLS and answer. What is read is the status line, so no
answer is too large. Redirects and proxies are not followed: a URL names the place that answers.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from scheduler import __version__
from scheduler.clock import SECOND, Micros
from scheduler.engine.deliveries import Undelivered
from scheduler.executors.threads import NoThread, off_loop

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r?\n")
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})


async def call(
    method: str,
    url: str,
    body: bytes | None,
    *,
    timeout: Micros,  # noqa: ASYNC109 - the deadline is part of the promise
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> None:
    """The URL was asked, and answered 2xx.

    Args:
        url: http or https, checked before.
        body: JSON, or None for a request without one.
        tls: makes the context of TLS; called in a thread, for it reads the trusted authorities.

    Raises:
        Undelivered: it did not; `final` where the answer would be the same next time.
    """
    try:
        async with asyncio.timeout(timeout / SECOND):
            status = await _exchange(method, urlsplit(url), body, tls)
    except TimeoutError as error:
        raise Undelivered(f"no answer in {timeout / SECOND:g} s") from error
    except ssl.SSLError as error:
        raise Undelivered(f"TLS failed: {error.reason or type(error).__name__}") from error
    except (OSError, ValueError, NoThread, asyncio.IncompleteReadError) as error:
        raise Undelivered(f"the request failed: {_plain(error)}") from error
    if not 200 <= status < 300:
        final = 300 <= status < 500 and status not in _WORTH_ANOTHER_TRY
        moved = ": name the place that it leads to" if 300 <= status < 400 else ""
        raise Undelivered(f"it answered {status}{moved}", final=final)


async def _exchange(
    method: str, url: SplitResult, body: bytes | None, tls: Callable[[], ssl.SSLContext]
) -> int:
    """The status of the answer."""
    context = await off_loop(tls) if url.scheme == "https" else None
    port = url.port or (443 if context else 80)
    reader, writer = await asyncio.open_connection(url.hostname, port, ssl=context)
    try:
        writer.write(_head(method, url, body) + (body or b""))
        await writer.drain()
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the answer is no HTTP") from error
    finally:
        writer.transport.abort()  # nothing of the answer is wanted any more, and no goodbye is waited for
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise ValueError("the answer is no HTTP")
    return int(found[1])


def _head(method: str, url: SplitResult, body: bytes | None) -> bytes:
    """Request line and headers; the URL was checked to be printable ASCII without blanks."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {url.netloc.rpartition('@')[2]}",
        f"User-Agent: schedulerd/{__version__}",
        "Accept: */*",
        "Connection: close",
    ]
    if url.username is not None:
        pair = unquote_to_bytes(url.username) + b":" + unquote_to_bytes(url.password or "")
        lines.append(f"Authorization: Basic {base64.b64encode(pair).decode()}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _plain(error: BaseException) -> str:
    """The error without addresses: some name the URL's parts, and those are shown masked elsewhere."""
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed without an answer"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the host has no address"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else "no connection to any of its addresses"
    return str(error) or type(error).__name__
