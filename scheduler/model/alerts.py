"""Who is told what of a job: pings of a dead man's switch, and hooks for what a person wants to hear of.

Values only. What a definition may say is judged in `config.jobmodel`; which transition is worth which notice
is `engine.alerts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit, urlunsplit

from scheduler.clock import Micros

MASK: Final = "***"
HOOK_KEYS: Final = ("on_failure", "on_recovery", "on_overdue", "on_pause", "on_budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that takes a JSON object by POST."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCommand:
    """A program and its arguments, without a shell."""

    argv: tuple[str, ...]


Hook: TypeAlias = Webhook | HookCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """URLs that are asked when a run moves on; each may be missing."""

    start: str | None = None
    success: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """What a definition says of its notices.

    Attributes:
        overdue_after: how long after a fire time its run may be missing; None = the job's `late_after`.
    """

    ping: Ping = Ping()
    on_failure: Hook | None = None
    on_recovery: Hook | None = None
    on_overdue: Hook | None = None
    on_pause: Hook | None = None
    on_budget: Hook | None = None
    overdue_after: Micros | None = None

    @property
    def tells_anything(self) -> bool:
        """Some transition of the job is told to somebody."""
        return self.ping != Ping() or any(getattr(self, key) is not None for key in HOOK_KEYS)


def hook_of(value: str | list[str] | None) -> Hook | None:
    """What a definition says of one hook, as a value: text is a URL, a list is a command."""
    if value is None:
        return None
    return Webhook(url=value) if isinstance(value, str) else HookCommand(argv=tuple(value))


def masked_url(url: str) -> str:
    """The URL for people: user, password and query are hidden, for that is where secrets stand."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    shown = SplitResult(
        scheme=parts.scheme,
        netloc=f"{MASK}@{host}" if host != parts.netloc else host,
        path=parts.path,
        query=MASK if parts.query else "",
        fragment=MASK if parts.fragment else "",
    )
    return urlunsplit(shown)


def masked(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a definition's canonical text for people: as they are, but for the secrets in URLs."""
    table = dict(definition)
    for key in HOOK_KEYS:
        if isinstance(table.get(key), str):
            table[key] = masked_url(table[key])
    if isinstance(table.get("ping"), Mapping):
        table["ping"] = {moment: masked_url(url) for moment, url in table["ping"].items()}
    return table
