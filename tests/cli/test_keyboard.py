"""What a terminal sends, as keys."""

from __future__ import annotations

import pytest

from scheduler.cli.keyboard import keys_in


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"jjx", ["j", "j", "x"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[Bcy", ["down", "c", "y"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[15~q", ["other", "q"]),
        (b"\x1b[1;5A", ["other"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys_come_one_by_one(sent: bytes, keys: list[str]) -> None:
    """Also when several were pressed before they were read; unknown sequences are one key."""
    assert list(keys_in(sent)) == keys
