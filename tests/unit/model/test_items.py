"""Items as values: their keys, their limits, and counts that add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import Invalid
from scheduler.model.items import LARGEST_ITEM, ItemCounts, freeze


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("intro", "intro"),
        ({"key": "ch1", "text": "x"}, "ch1"),
        ({"key": 7}, "7"),
        ({"text": "x"}, "3"),
        (12, "12"),
        (True, "true"),
        (None, "3"),
        (["a"], "3"),
    ],
)
def test_the_key_of_an_item(value: Any, key: str) -> None:
    """Its `key`, else the text itself, else a number's JSON, else its place."""
    assert freeze(3, value).key == key


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "a\x00b", "k" * 513])
def test_a_key_is_readable_text(key: str) -> None:
    """Empty ones, control characters and long ones are refused, and the item is named by its place."""
    with pytest.raises(Invalid, match="item 3"):
        freeze(3, key)


def test_a_large_item_comes_by_file() -> None:
    """Over 64 KiB it is refused, with the hint how to pass it."""
    assert freeze(0, {"key": "k", "text": "x" * (LARGEST_ITEM - 100)}).payload
    with pytest.raises(Invalid) as refused:
        freeze(0, {"key": "big", "text": "x" * LARGEST_ITEM})
    assert "big" in refused.value.message
    assert "file" in (refused.value.hint or "")


@given(value=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_the_payload_is_the_value(value: dict[str, Any]) -> None:
    """What is frozen reads back as it was written."""
    try:
        frozen = freeze(0, value)
    except Invalid:
        return  # its key is none
    assert json.loads(frozen.payload) == value


def test_counts_add_up() -> None:
    """What is in no other state is pending."""
    counts = ItemCounts(total=10, done=3, failed=2, unknown=1, running=2)

    assert counts.pending == 2
