"""Cursors: opaque, of one kind, and only those that were given out."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.control.pages import Cursors
from scheduler.errors import Invalid


@given(st.text(min_size=1))
def test_a_cursor_comes_back_as_its_key(key: str) -> None:
    """What was put into a cursor is found in it again, whatever it is."""
    cursors = Cursors("jobs")

    assert cursors.text(cursors.encode(key)) == key
    assert cursors.encode(key).isascii()


@given(st.integers(min_value=0, max_value=2**59))
def test_a_number_comes_back_as_a_number(number: int) -> None:
    """Sequence numbers survive the way, too."""
    assert Cursors("runs").number(Cursors("runs").encode(number)) == number


def test_no_cursor_is_no_key() -> None:
    """The first page is asked for without one."""
    assert Cursors("runs").number(None) is None
    assert Cursors("jobs").text(None) is None


@given(st.text())
def test_nonsense_is_refused_or_was_given_out(cursor: str) -> None:
    """Any text is either a cursor of this kind or a fault, never another error."""
    with contextlib.suppress(Invalid):
        assert Cursors("jobs").text(cursor)


def test_a_refusal_names_the_parameter() -> None:
    """The fault has the key `cursor`."""
    with pytest.raises(Invalid) as refused:
        Cursors("jobs").text("!")

    assert [fault.key for fault in refused.value.faults] == ["cursor"]


@pytest.mark.parametrize(
    "text", ["jobs:1", "runs:", "runs:x", "runs:-1", "runs:" + "9" * 30, "runs:²", "runs"]
)
def test_other_cursors_are_refused(text: str) -> None:
    """A cursor of another list, or one with no number in it, is refused."""
    with pytest.raises(Invalid):
        Cursors("runs").number(base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))


def test_a_page_knows_whether_there_are_more() -> None:
    """One row more than the limit makes a cursor behind the last row shown; no more make none."""
    cursors = Cursors("runs")
    more = cursors.page(["a", "b", "c"], 2, [30, 20, 10])
    last = cursors.page(["a", "b"], 2, [30, 20])

    assert (list(more.rows), cursors.number(more.next_cursor)) == (["a", "b"], 20)
    assert (list(last.rows), last.next_cursor) == (["a", "b"], None)
