from __future__ import annotations

import json
from enum import StrEnum

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.logfields import EventName, JsonLines, careful_line
from scheduler.logline import KEY_LIMIT, MASK, VALUE_LIMIT, Masks, json_line

NOON = 1_700_000_000_000_000


class Name(EventName):
    RUN_CLAIMED = "run_claimed"


class Trigger(StrEnum):
    SCHEDULE = "schedule"


KEYS = st.sampled_from(
    ["job", "run_id", "attempt", "claim", "fire_time", "trigger", "ended_at", "level", "message", "exception"]
) | st.text(st.characters(exclude_categories=()), max_size=5)
VALUES = (
    st.sampled_from([Trigger.SCHEDULE, None, True, 2**53, -(2**63), 2**63, 10**30, 10**5000, NOON, "abcd"])
    | st.sampled_from(
        ["x" * KEY_LIMIT, "x" * (KEY_LIMIT + 1), "y" * (VALUE_LIMIT + 1), "\udcff", "\x7f", "ü\n"]
    )
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.lists(st.integers(), max_size=2)
)


def by_hand(fields: dict[str, object], masks: Masks) -> bytes:
    return careful_line(NOON, "info", Name.RUN_CLAIMED, fields, masks=masks, text=json_line)[1]


@given(
    fields=st.dictionaries(KEYS, VALUES, max_size=8), secret=st.sampled_from(["", "abcd", "schedule", "cdü"])
)
def test_the_short_way_makes_the_same_line(fields: dict[str, object], secret: str) -> None:
    """Whatever the fields are, an event is told as it would be if each value were looked at by itself."""
    masks = Masks()
    masks.add([secret])

    assert JsonLines(masks)(NOON, "info", Name.RUN_CLAIMED, fields)[1] == by_hand(fields, masks)


def test_usual_events_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of closed lists, ids, instants and numbers need no second look, whatever their order."""
    monkeypatch.setattr("scheduler.logfields.careful_line", None)
    fields = {"trigger": Trigger.SCHEDULE, "fire_time": NOON, "job": "a", "reason": None, "seconds": 0.5}

    _, line = JsonLines(Masks())(NOON, "info", Name.RUN_CLAIMED, fields)

    assert line == (
        b'{"timestamp":"2023-11-14T22:13:20.000000+00:00","level":"info","event":"run_claimed","job":"a",'
        b'"fire_time":"2023-11-14T22:13:20.000000+00:00","trigger":"schedule","reason":null,"seconds":0.5}\n'
    )


def test_a_secret_that_is_named_later_is_masked_in_the_same_words() -> None:
    """That a text was found free of secrets holds until the next secret is known."""
    masks = Masks()
    lines = JsonLines(masks)
    masks.add(["another-secret"])
    fields: dict[str, object] = {"message": "token-1234"}
    lines(NOON, "info", Name.RUN_CLAIMED, fields)

    masks.add(["token-1234"])

    assert json.loads(lines(NOON, "info", Name.RUN_CLAIMED, fields)[1])["message"] == MASK


def test_a_name_that_is_not_ours_is_masked_like_any_value() -> None:
    """Only names of our closed list are innocent; a secret may stand where other code names its event."""
    masks = Masks()
    masks.add(["schedule"])

    _, line = JsonLines(masks)(NOON, "info", Trigger.SCHEDULE, {})

    assert json.loads(line)["event"] == MASK


def test_what_orjson_would_take_raw_is_not_taken_raw() -> None:
    """A value that says of itself that it is JSON already cannot forge a field."""
    _, line = JsonLines(Masks())(
        NOON, "info", Name.RUN_CLAIMED, {"value": orjson.Fragment(b'1,"level":"error"')}
    )

    assert json.loads(line)["level"] == "info"
