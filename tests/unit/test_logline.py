from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.logline import (
    ENTRY_LIMIT,
    EXCEPTION_LIMIT,
    LINE_LIMIT,
    MASK,
    VALUE_LIMIT,
    Masks,
    console_line,
    json_line,
    plain_fields,
)

JOURNAL_LIMIT = 48 * 1024

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates and control characters as well
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(TEXT, inner, max_size=5) | st.sets(st.integers(), max_size=5)
    ),
    max_leaves=10,
)
FIELDS = st.dictionaries(TEXT, VALUES, max_size=5)


def rendered(masks: Masks | None = None, /, **fields: object) -> bytes:
    return json_line(plain_fields(fields, masks or Masks()))


def parsed(line: bytes) -> dict[str, object]:
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    assert len(line) < JOURNAL_LIMIT
    fields = json.loads(line)
    assert isinstance(fields, dict)
    return fields


@given(fields=FIELDS)
def test_any_fields_make_one_json_line_that_parses_back(fields: dict[str, object]) -> None:
    """Whatever the keys and values are, the result is one bounded line of one JSON object."""
    parsed(json_line(plain_fields(fields, Masks())))


@given(fields=FIELDS)
def test_any_fields_make_one_printable_console_line(fields: dict[str, object]) -> None:
    """Whatever the keys and values are, a console line has no character that moves a cursor."""
    fields.pop("exception", None)

    text = console_line(plain_fields(fields, Masks()), coloured=False).decode()

    assert text.endswith("\n")
    assert text[:-1].isprintable()


@given(text=st.text(max_size=VALUE_LIMIT))
def test_text_comes_back_unchanged(text: str) -> None:
    """Escaping loses nothing: the reader gets the very characters that were logged."""
    assert parsed(rendered(value=text)) == {"value": text}


@pytest.mark.parametrize(
    "text",
    ["a\nb", "a\r\nb", "\x1b[2J", "\x7f", "\x85", "\x9b31m", "\u2028", "\u202e", "\x00", '"}\n{"event":"x'],
)
def test_control_characters_stay_out_of_the_bytes(text: str) -> None:
    """Neither a line end nor a terminal sequence of a value reaches the stream."""
    line = rendered(value=text)

    assert line[:-1].decode().isprintable()
    assert parsed(line) == {"value": text}


def test_a_lone_surrogate_is_told_as_its_escape() -> None:
    """Text that no encoding can bear (a file name in another encoding) does not cost the line."""
    assert parsed(rendered(value="file-\udcff")) == {"value": "file-\\udcff"}


class Colour(Enum):
    RED = "red"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


class HostileList(Sequence[int]):
    def __getitem__(self, index: object) -> int:  # type: ignore[override]  # never comes to it
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 3


class HostileMap(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Colour.RED, "red"),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        pytest.param(10**5000, "<int: ValueError while describing it>", id="huge"),
        (float("inf"), None),
        (b"\xffab", "\\xffab"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (Hostile(), "<Hostile: RuntimeError while describing it>"),
        (HostileList(), "<HostileList: RuntimeError while reading it>"),
        (HostileMap(), "<HostileMap: RuntimeError while reading it>"),
        (ValueError("gone\nwrong"), "gone\nwrong"),
    ],
)
def test_a_value_that_json_does_not_know_is_told_as_text(value: object, told: object) -> None:
    """No value is refused: what cannot be encoded is described."""
    assert parsed(rendered(value=value)) == {"value": told}


def test_a_megabyte_is_cut_with_a_mark() -> None:
    """A long value is cut, and the line says how long it was."""
    value = parsed(rendered(value="x" * 1_000_000))["value"]

    assert value == "x" * VALUE_LIMIT + "… (1000000 characters)"


def test_many_long_values_share_one_budget() -> None:
    """A line stays bounded when every one of its values is long."""
    line = rendered(None, **{f"value{index}": "x" * 900 for index in range(40)})

    parsed(line)
    assert len(line) < 2 * LINE_LIMIT


def test_wide_deep_and_endless_collections_are_cut() -> None:
    """A collection is told by its first entries and not deeper than anyone would read."""
    endless: list[object] = []
    endless.append(endless)

    fields = parsed(
        rendered(wide=list(range(10_000)), table=[[0] * 1000] * 1000, endless=endless, map={"a": 1})
    )

    assert fields["wide"] == [*range(ENTRY_LIMIT), "…"]
    assert "…" in json.dumps(fields["endless"], ensure_ascii=False)
    assert len(json.dumps(fields)) < 2 * LINE_LIMIT


def test_a_wide_mapping_says_that_it_was_cut() -> None:
    """A reader sees that a mapping had more entries than are shown."""
    value = parsed(rendered(value={f"k{index}": None for index in range(100)}))["value"]

    assert isinstance(value, dict)
    assert len(value) == ENTRY_LIMIT + 1
    assert value["…"] == "…"


def test_a_long_traceback_keeps_its_end() -> None:
    """The end of a traceback says what happened, so the head is what is cut."""
    exception = str(parsed(rendered(exception="frame\n" * 10_000 + "ValueError: this"))["exception"])

    assert exception.startswith("(60016 characters) …")
    assert exception.endswith("ValueError: this")
    assert len(exception) < EXCEPTION_LIMIT + 100


def test_a_secret_is_masked_wherever_a_string_is() -> None:
    """A value from an env_file does not appear in texts, keys, collections, objects or tracebacks."""
    masks = Masks()
    masks.add(["s3cr3t-token"])

    line = rendered(
        masks,
        text="Bearer s3cr3t-token!",
        nested={"s3cr3t-token": ["x s3cr3t-token"]},
        error=ValueError("s3cr3t-token"),
        raw=b"s3cr3t-token",
        exception="Traceback\ns3cr3t-token",
    )

    assert b"s3cr3t" not in line
    assert parsed(line)["text"] == f"Bearer {MASK}!"


@given(
    before=st.integers(0, 3 * VALUE_LIMIT),
    repeats=st.integers(1, 300),
    secret=st.text("abc", min_size=4, max_size=40),
    field=st.sampled_from(["value", "exception"]),
)
def test_a_cut_leaves_no_part_of_a_secret(before: int, repeats: int, secret: str, field: str) -> None:
    """Wherever the cut falls, not even three letters of a secret stay: half a key is a hint."""
    masks = Masks()
    masks.add([secret])
    text = "-" * before + f"{secret}." * repeats + "-" * before

    told = str(parsed(rendered(masks, **{field: text}))[field])

    assert not set("abc") & set(told.replace("characters", ""))


def test_each_line_of_a_long_secret_is_masked() -> None:
    """A key of many lines is masked line by line, because tools print it so."""
    masks = Masks()
    masks.add(["BEGIN KEY\nMIIEpAIB\nEND KEY"])

    assert parsed(rendered(masks, value="got MIIEpAIB")) == {"value": f"got {MASK}"}


def test_a_secret_inside_another_does_not_leave_a_rest() -> None:
    """Of two secrets of which one contains the other, the longer is masked as a whole."""
    masks = Masks()
    masks.add(["abcd", "abcd-efgh"])

    assert parsed(rendered(masks, value="abcd-efgh")) == {"value": MASK}


def test_settings_and_ids_are_no_secrets() -> None:
    """Values of three characters stay legible, and so does the id by which a log is searched."""
    masks = Masks()
    masks.add(["", "yes", "narrate"])

    assert parsed(rendered(masks, value="yes", job="narrate")) == {"value": "yes", "job": "narrate"}


def test_the_newest_thousand_secrets_are_known() -> None:
    """A secret that changes with every run does not fill the memory, and the newest is always masked."""
    masks = Masks()
    masks.add(f"token-{index:06}" for index in range(5_000))

    fields = parsed(rendered(masks, old="token-000000", new="token-004999"))

    assert fields == {"old": "token-000000", "new": MASK}


def test_the_console_reads_as_words() -> None:
    """On a terminal an event is its time, level and name, then key=value; only odd values are quoted."""
    fields = {
        "timestamp": "T",
        "level": "info",
        "event": "run_started",
        "job": "a.b",
        "text": "two words",
        "n": 3,
    }

    assert console_line(plain_fields(fields, Masks()), coloured=False) == (
        b'T info     run_started job=a.b text="two words" n=3\n'
    )


def test_colours_are_kept_off_when_not_wanted() -> None:
    """Colours are added only where they are asked for."""
    fields = plain_fields({"timestamp": "T", "level": "error", "event": "run_failed"}, Masks())

    assert b"\x1b[31m" in console_line(fields, coloured=True)
    assert b"\x1b" not in console_line(fields, coloured=False)


def test_a_traceback_on_the_console_cannot_pose_as_a_line() -> None:
    """Each line of a traceback is indented, so that a message with line ends forges no event."""
    fields = plain_fields({"event": "run_failed", "exception": "Boom\nT info daemon_stopped\x1b[2J"}, Masks())

    lines = console_line(fields, coloured=False).decode().splitlines()

    assert lines[1:] == ["    | Boom", "    | T info daemon_stopped\\x1b[2J"]
