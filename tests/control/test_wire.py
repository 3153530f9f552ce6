"""JSON, read strictly."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.control.wire import MAX_DEPTH, read_json

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(values)
def test_every_json_value_is_read_as_it_is(value: Any) -> None:
    """Whatever the standard library writes is read back equal, large integers too."""
    assert read_json(json.dumps(value).encode()) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_an_error_of_json(body: bytes) -> None:
    """Nothing but a JSON error comes out of nonsense."""
    with contextlib.suppress(json.JSONDecodeError):
        read_json(body)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_is_bounded(opening: str, closing: str) -> None:
    """So many levels are read, one more is refused."""
    levels = MAX_DEPTH
    read_json((opening * levels + "1" + closing * levels).encode())

    levels += 1
    with pytest.raises(json.JSONDecodeError, match="levels deep"):
        read_json((opening * levels + "1" + closing * levels).encode())


def test_commas_in_text_are_no_values() -> None:
    """A long text with many commas is one value."""
    text = "a," * 200_000

    assert read_json(json.dumps({"csv": text}).encode()) == {"csv": text}


@pytest.mark.parametrize("part", ["[]", "{}", "1", '"x"', '{"a":1}'])
def test_no_megabyte_takes_the_loop_for_long(part: str) -> None:
    """The worst body of a megabyte is judged in a moment (I15)."""
    body = ("[" + ",".join([part] * (1_000_000 // (len(part) + 1))) + "]").encode()
    took = []
    for _ in range(3):
        began = time.process_time()
        with pytest.raises(json.JSONDecodeError):
            read_json(body)
        took.append(time.process_time() - began)

    assert min(took) < 0.1
