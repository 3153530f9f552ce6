"""Who is told of a job, as an author writes it: the table of pings and the `on_…` keys."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, PlainValidator

from scheduler.config.fields import STRICT, Wrong
from scheduler.config.wording import kind_of
from scheduler.model.alerts import MASK

_LONGEST: Final = 2000
_NOT_IN_URLS: Final = re.compile(r"[^\x21-\x7e]")
_NOT_IN_ARGUMENTS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _url(value: object) -> str:
    """An address of http or https. What is wrong is said without showing it, for it may hold a secret."""
    if not isinstance(value, str):
        raise Wrong(f'must be a URL like "https://example.org/ping/1", not {kind_of(value)}')
    if len(value) > _LONGEST:
        raise Wrong(f"is longer than {_LONGEST} characters")
    if _NOT_IN_URLS.search(value):
        raise Wrong("holds a blank or a character beyond ASCII: write it percent-encoded")
    if MASK in value:
        raise Wrong(f"holds {MASK}, which stands for a hidden secret: write the whole URL")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise Wrong("is no URL that can be read") from error
    if parts.scheme not in ("http", "https"):
        raise Wrong("must be a URL that begins with https:// or http://")
    if not parts.hostname or port == 0:
        raise Wrong("names no host that could be asked")
    return value


def _hook(value: object) -> str | list[str]:
    """A URL, or the arguments of a command."""
    if isinstance(value, str):
        try:
            return _url(value)
        except Wrong as error:
            raise Wrong(f'{error}; a command is a list, like ["/usr/local/bin/tell", "ops"]') from error
    if not isinstance(value, list):
        raise Wrong(f"must be a URL, or a command as a list of text, not {kind_of(value)}")
    if not value or not all(isinstance(word, str) for word in value) or not value[0].strip():
        raise Wrong('must name a program, and have text only: ["/usr/local/bin/tell", "ops"]')
    if any(_NOT_IN_ARGUMENTS.search(word) for word in value):
        raise Wrong("holds a control character, which is not allowed here")
    return value


Url: TypeAlias = Annotated[str, PlainValidator(_url)]
HookKey: TypeAlias = Annotated[str | list[str], PlainValidator(_hook)]


class PingTable(BaseModel):
    """`[jobs.ID.ping]`."""

    model_config = STRICT

    start: Url | None = None
    success: Url | None = None
    failure: Url | None = None
