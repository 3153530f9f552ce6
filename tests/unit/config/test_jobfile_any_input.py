"""Whatever an author writes, or a program sends, ends as definitions or as faults."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.config.batchmodel import RetryTable
from scheduler.config.fields import names_of
from scheduler.config.jobfile import parse_definition, parse_jobs
from scheduler.config.jobmodel import JobTable
from scheduler.config.settings import Settings
from scheduler.errors import Fault, Invalid
from scheduler.model.definitions import decode
from scheduler.model.jobs import JobDefinition

EXAMPLES = 100
"""More than elsewhere: most of what is drawn is refused at the first look."""

SETTINGS = Settings(timezone="America/New_York", groups={"g": 1}, calendars={"c": ("2026-12-24",)})

_ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=8)  # lone surrogates too
_KNOWN_TEXT = """
* * * * *|0 0 30 2 *|5s|-5s|1e9999|99999999999999d|Europe/Berlin|UTC|a.b:c|/srv|skip|allow|retry|resume|unit|g
|calendar: c|cron: * * * * *|2026-12-24..2026-12-26|2027-01-01T00:00:00Z|2027-01-01T00:00:00
|1969-12-31T23:59:59+23:59|9998-12-31T23:59:59-23:59
"""
_KNOWN_NUMBERS = [0, 1, 2, -1, 2**63, 10**30, 0.0, 0.1, float("nan"), float("inf")]
_KNOWN_VALUES = st.sampled_from(
    [*_KNOWN_TEXT.replace("\n", "").split("|"), *_KNOWN_NUMBERS, True, False, None],
)
_SCALARS = st.one_of(
    _KNOWN_VALUES,
    _ANY_TEXT,
    st.integers(),
    st.floats(),
    st.datetimes(),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
    st.binary(max_size=3),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_ANY_TEXT | st.integers(), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(sorted(names_of(JobTable))) | _ANY_TEXT
_RETRY = st.dictionaries(st.sampled_from(sorted(names_of(RetryTable))) | _ANY_TEXT, _VALUES, max_size=4)
_TABLES = st.dictionaries(_KEYS, _VALUES | _RETRY, max_size=8) | _VALUES
_JOBS = st.dictionaries(st.sampled_from(["a", "a.b", "B"]) | _ANY_TEXT | st.integers(), _TABLES, max_size=3)
_TOPS = st.fixed_dictionaries({"jobs": _JOBS | _VALUES}) | st.dictionaries(_ANY_TEXT, _VALUES, max_size=3)


@settings(max_examples=EXAMPLES)
@given(_TOPS)
def test_any_mapping_gives_definitions_or_faults(top: dict[str, Any]) -> None:
    """No mapping makes it raise; what it takes can be stored and read again, what it refuses can be told."""
    definitions, found = parse_jobs(top, "x.toml", SETTINGS)

    for job in definitions:
        _assert_storable(job)
    for fault in found:
        _assert_tellable(fault)


@settings(max_examples=EXAMPLES)
@given(_ANY_TEXT, _TABLES)
def test_any_definition_of_the_api_is_taken_or_invalid(job_id: str, table: object) -> None:
    """The API's way in raises Invalid with faults and nothing else."""
    for fault in _refusal(job_id, table):
        _assert_tellable(fault)


_PIECES = [
    *[
        "[jobs.a]",
        "[jobs.b.c]",
        "[jobs",
        "]",
        "\n",
        "every",
        "=",
        "5",
        "{",
        "}",
        "[",
        ",",
        ".",
        "#",
        "-",
        "2027-01-01",
        "T00:00:00Z",
    ],
    *["shell", "true", "inf", "nan", "0x", "_", "\\", "\x00", "\r", "'", "'''", '"', '"""'],
]


@settings(max_examples=EXAMPLES)
@given(st.lists(st.sampled_from(_PIECES) | _ANY_TEXT, max_size=20).map("".join))
def test_any_text_gives_definitions_or_faults(text: str) -> None:
    """No text makes it raise, and a line that a fault names is one of the text."""
    definitions, found = parse_jobs(text, "x.toml", SETTINGS)

    for job in definitions:
        _assert_storable(job)
    for fault in found:
        _assert_tellable(fault)
        assert fault.line is None or 1 <= fault.line <= text.count("\n") + 1


def _refusal(job_id: str, table: object) -> tuple[Fault, ...]:
    """The faults of a definition that is refused; one that is taken has none."""
    try:
        _assert_storable(parse_definition(job_id, table, SETTINGS))
    except Invalid as refused:
        return refused.faults or (Fault(message="\0 refused, and nobody says why"),)
    return ()


def _assert_storable(job: JobDefinition) -> None:
    job.source.encode()
    assert decode(job.id, job.source) == job


def _assert_tellable(fault: Fault) -> None:
    str(fault).encode()
    assert str(fault).isprintable()
    assert len(str(fault)) < 2000
