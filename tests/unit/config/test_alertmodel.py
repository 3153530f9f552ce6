"""Who is told of a job, as an author may write it (issue 5, point 8)."""

from __future__ import annotations

import json

import pytest

from scheduler.clock import MINUTE
from scheduler.config.jobfile import parse_definition
from scheduler.config.settings import Settings
from scheduler.errors import Invalid
from scheduler.model.alerts import (
    HOOK_KEYS,
    Alerts,
    HookCommand,
    Ping,
    Webhook,
    masked,
    masked_url,
)
from scheduler.model.definitions import decode

URL = "https://me:pw@ping.example.org:8443/a/b?key=secret"
BASE = {"every": "1h", "command": ["true"]}


def alerts_of(**keys: object) -> Alerts:
    return parse_definition("a", {**BASE, **keys}, Settings()).alerts


def fault(**keys: object) -> str:
    with pytest.raises(Invalid) as found:
        parse_definition("a", {**BASE, **keys}, Settings())
    return str(found.value)


def test_a_job_tells_nobody_by_default() -> None:
    """Without keys there is nobody to tell, and nothing of it in the canonical text."""
    definition = parse_definition("a", BASE, Settings())

    assert definition.alerts == Alerts()
    assert not definition.alerts.tells_anything
    assert not set(json.loads(definition.source)) & {"ping", "overdue_after", *HOOK_KEYS}


def test_every_receiver_is_kept_and_comes_back_from_the_text() -> None:
    """Text is a webhook, a list a command; the canonical text says all of it."""
    definition = parse_definition(
        "a",
        {
            **BASE,
            "ping": {"start": URL, "failure": "http://[::1]/x"},
            "on_failure": ["/bin/tell", "ops", ""],
            "on_overdue": URL,
            "overdue_after": "10m",
        },
        Settings(),
    )

    assert definition.alerts == Alerts(
        ping=Ping(start=URL, failure="http://[::1]/x"),
        on_failure=HookCommand(argv=("/bin/tell", "ops", "")),
        on_overdue=Webhook(url=URL),
        overdue_after=10 * MINUTE,
    )
    assert decode("a", definition.source) == definition


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("ftp://example.org/x", "begins with https:// or http://"),
        ("example.org/x", "begins with https:// or http://"),
        ("https:///x", "names no host"),
        ("https://example.org:0/x", "names no host"),
        ("https://example.org:99999/x", "no URL that can be read"),
        ("https://[::1/x", "no URL that can be read"),
        ("https://example.org/a b", "percent-encoded"),
        ("https://example.org/\r\nX: y", "percent-encoded"),
        ("https://exämple.org/", "percent-encoded"),
        ("https://***@example.org/", "write the whole URL"),
        ("https://example.org/" + "x" * 2000, "longer than"),
        ("", "begins with https:// or http://"),
        ([], "must name a program"),
        ([""], "must name a program"),
        (["a", 1], "must name a program"),
        (["a", "b\0"], "control character"),
        (7, "must be a URL, or a command"),
        ({"command": ["x"]}, "must be a URL, or a command"),
    ],
)
def test_what_cannot_be_told_is_refused_at_load(value: object, why: str) -> None:
    """Only addresses of http and https, and commands as lists; the fault says so and shows no value."""
    message = fault(on_failure=value)

    assert "on_failure" in message
    assert why in message


def test_a_fault_shows_no_secret() -> None:
    """A mistyped address may hold a password: it is not repeated."""
    assert "hunter22" not in fault(ping={"start": "htps://me:hunter22@example.org/"})


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"overdue_after": "1m"}, "belongs to on_overdue"),
        ({"on_budget": ["x"]}, "has no budget"),
        ({"every": None, "manual": True, "on_overdue": ["x"]}, "no fire times"),
        ({"ping": {"begin": URL}}, "unknown key"),
    ],
)
def test_keys_that_could_never_act_are_refused(keys: dict[str, object], why: str) -> None:
    """A key without what it depends on is a mistake, not a silence."""
    table = {key: value for key, value in {**BASE, **keys}.items() if value is not None}
    with pytest.raises(Invalid, match=why):
        parse_definition("a", table, Settings())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "https://***@ping.example.org:8443/a/b?***"),
        ("http://host/a", "http://host/a"),
        ("http://key@host/a#secret", "http://***@host/a#***"),
        ("http://[::1", "***"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """User, password, query and fragment are hidden; what tells receivers apart stays."""
    assert masked_url(url) == shown


def test_a_definition_is_shown_without_its_secrets_and_cannot_be_sent_back_so() -> None:
    """What the API shows holds no secret; sent back as it is, it is refused instead of losing them."""
    definition = parse_definition("a", {**BASE, "on_pause": URL, "ping": {"start": URL}}, Settings())

    shown = masked(json.loads(definition.source))

    assert "secret" not in json.dumps(shown)
    assert "pw" not in json.dumps(shown)
    with pytest.raises(Invalid, match="write the whole URL"):
        parse_definition("a", shown, Settings())
