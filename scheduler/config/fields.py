"""What a single value in our TOML files may be, checked strictly: no text for a number, no unknown key.

pydantic judges the shapes, this module words its findings for a person and lets the rules that look at
several keys see what is sound beside what is not. It knows kinds of values, not what they are for: that
is in `jobmodel` and `settings`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import ErrorDetails

from scheduler.clock import Micros
from scheduler.config.wording import KeyPath, Problem, kind_of, nearest, printable, shown, unknown_key
from scheduler.errors import Invalid
from scheduler.model.durations import parse_duration
from scheduler.model.triggers import load_zone

STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True)

JSON_LIMIT: Final = 64 * 1024
JSON_DEPTH: Final = 20

_INT_MAX: Final = 2**63 - 1
# C0, DEL, C1 and the two line separators of Unicode: what ends a line or drives a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LAYOUT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUL: Final = re.compile("\0")
_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*((?:[kmgt]i?)?b|)", re.ASCII | re.IGNORECASE)
_SIZE_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE_RANGE: Final = range(2**10, 2**40 + 1)
_ZONE_LENGTH: Final = 100
_YEARS: Final = range(1970, 9999)

_TYPES: Final = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
_COMMAND_HELP: Final = ': write ["program", "argument"], or shell = "..." for a line of the shell'


class Wrong(ValueError):
    """One value is not acceptable; the text says why. pydantic collects them, none leaves this package."""


M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Checked(Generic[M]):
    """A table as far as it is sound.

    Attributes:
        table: the model, with the default in the place of every top-level key that is not sound.
        unsound: those keys.
        problems: what is wrong with them.
    """

    table: M
    unsound: frozenset[str]
    problems: tuple[Problem, ...]


def checked(model: type[M], values: Mapping[str, object], *, foreign: Mapping[str, str]) -> Checked[M]:
    """Every value of a table is judged by itself; rules about several of them come after.

    Args:
        model: what the table may hold; every field has a default.
        values: the table as it was read.
        foreign: words of other tools, each with ours for the same thing.
    """
    given = {key: value for key, value in values.items() if _is_set(key, value)}
    problems = [_no_value(key, value) for key, value in values.items() if key not in given]
    try:
        return Checked(model.model_validate(given), _top_keys(problems), tuple(problems))
    except ValidationError as error:
        problems += [_problem(found, model, foreign) for found in error.errors(include_url=False)]
    unsound = _top_keys(problems)
    sound = {key: value for key, value in given.items() if key not in unsound}
    return Checked(model.model_validate(sound), unsound, tuple(problems))


def names_of(model: type[BaseModel]) -> frozenset[str]:
    """The keys that a table of this kind may have."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def choice(enum: type[E]) -> PlainValidator:
    """One word of a closed list; another one is named, with the nearest of the list."""
    words = tuple(member.value for member in enum)
    offer = " or ".join(f'"{word}"' for word in words)

    def read(value: object) -> E:
        if isinstance(value, str) and value in words:
            return enum(value)
        near = nearest(value, words) if isinstance(value, str) else None
        meant = f': did you mean "{near}"?' if near else ""
        raise Wrong(f"must be {offer}, not {shown(value)}{meant}")

    return PlainValidator(read)


def _is_set(key: object, value: object) -> bool:
    return isinstance(key, str) and _is_well_formed(key) and value is not None


def _no_value(key: object, value: object) -> Problem:
    """What is wrong with a key that is no text, or that has no value (JSON's null)."""
    if not isinstance(key, str):
        return Problem((kind_of(key),), f"a key must be text, not {kind_of(key)}")
    if not _is_well_formed(key):
        return Problem((key,), "a key must be UTF-8")
    return Problem((key,), f"is {kind_of(value)}: leave the key out to get its default")


def _top_keys(problems: Sequence[Problem]) -> frozenset[str]:
    return frozenset(str(problem.path[0]) for problem in problems)


def _problem(found: ErrorDetails, model: type[BaseModel], foreign: Mapping[str, str]) -> Problem:
    """One finding of pydantic in our words."""
    path: KeyPath = tuple(part for part in found["loc"] if part != "[key]")
    context = found.get("ctx", {})
    match found["type"]:
        case "extra_forbidden":
            return Problem(path, unknown_key(str(path[-1]), _names_at(model, path[:-1]), foreign))
        case "value_error":
            return Problem(path, str(context["error"]))
        case "greater_than_equal":
            return Problem(path, f"must be at least {context['ge']}")
        case "greater_than":
            return Problem(path, f"must be more than {context['gt']}")
        case "less_than_equal":
            return Problem(path, f"must be at most {context['le']}")
        case kind if kind in _TYPES:
            told = f"must be {_TYPES[kind]}, not {kind_of(found['input'])}"
            return Problem(path, f"{told}{_COMMAND_HELP}" if path == ("command",) else told)
        case _:
            return Problem(path, printable(found["msg"]))


def _names_at(model: type[BaseModel], path: KeyPath) -> frozenset[str]:
    """The keys of the table at a path below a model."""
    for part in path:
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        for inner in (fields.get(str(part)), *get_args(fields.get(str(part)))):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                model = inner
    return names_of(model)


def _one_line(text: str) -> str:
    if not text.strip():
        raise Wrong("must not be empty")
    return _no_control(text)


def _no_control(text: str) -> str:
    return _without(_CONTROL, text)


def _no_odd_control(text: str) -> str:
    return _without(_CONTROL_BUT_LAYOUT, text)


def _no_nul(text: str) -> str:
    return _without(_NUL, text)


def _without(control: re.Pattern[str], text: str) -> str:
    """The text, if it is well-formed and holds none of these characters."""
    found = control.search(text)
    if found:
        raise Wrong(f"holds the control character {found.group()!a}, which is not allowed here")
    return _well_formed(text)


def _well_formed(text: str) -> str:
    if not _is_well_formed(text):
        raise Wrong("holds half a character (a lone surrogate), which is no UTF-8")
    return text


def _is_well_formed(text: str) -> bool:
    return _SURROGATE.search(text) is None


def _absolute(text: str) -> str:
    if not _one_line(text).startswith("/"):
        raise Wrong("must be an absolute path, one that begins with /")
    return text


def _zone(text: str) -> str:
    if len(text) > _ZONE_LENGTH:
        raise Wrong("is no name of a time zone: write for example Europe/Berlin or UTC")
    try:
        return load_zone(text).name
    except Invalid as error:
        raise Wrong(error.message) from error


def _duration(value: object) -> Micros:
    """A duration that was written as text or in seconds, as microseconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Wrong(f'must be a duration ("90s", "15m", "1h30m", a number of seconds), not {kind_of(value)}')
    if isinstance(value, int) and abs(value) > _INT_MAX:
        raise Wrong("is longer than a hundred years")
    try:
        return parse_duration(value)
    except Invalid as error:
        raise Wrong(error.message) from error


def _byte_size(value: object) -> int:
    """A number of bytes, plain or with a unit."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif found:
        size = int(found[1]) * _SIZE_UNITS[found[2].lower()]
    else:
        raise Wrong(f'must be a size like "10MiB" or "500kB", or a number of bytes, not {shown(value)}')
    if not _SIZE_RANGE.start <= size < _SIZE_RANGE.stop:
        raise Wrong("must be between 1KiB and 1TiB")
    return size


def _more_than_zero(value: Micros) -> Micros:
    if value <= 0:
        raise Wrong("must be longer than 0")
    return value


def _moment(value: object) -> datetime:
    """A point in time as TOML has it, or as RFC 3339 text; without an offset it is still naive."""
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            value = datetime.fromisoformat(value.upper())
        except ValueError as error:
            raise Wrong(f"is no time of the calendar: {error}") from error
    if not isinstance(value, datetime):
        raise Wrong(
            "must be a date with a time, like 2027-01-01T09:00:00+01:00 (without an offset it is in the"
            f" job's timezone), not {shown(value)}"
        )
    if value.year not in _YEARS:
        raise Wrong(f"is out of range: write a year between {_YEARS.start} and {_YEARS.stop - 1}")
    return value


def _json_object(value: object) -> dict[str, Any]:
    """A table that JSON can carry, at most 64 KiB of it."""
    if not isinstance(value, Mapping):
        raise Wrong(f'must be a table, like {{ region = "eu" }}, not {kind_of(value)}')
    _check_json(value, 0)
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > JSON_LIMIT:
        raise Wrong(f"is {size} bytes as JSON, more than {JSON_LIMIT}: put large data in a file")
    return dict(value)


def check_json(value: object) -> None:
    """The value is one that JSON can carry.

    Raises:
        Wrong: it is not.
    """
    _check_json(value, 0)


def _check_json(value: object, depth: int) -> None:
    """Raises ValueError at the first part that JSON (or a 64-bit reader of it) cannot carry."""
    if depth > JSON_DEPTH:
        raise Wrong(f"is nested deeper than {JSON_DEPTH} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Wrong(f"holds a key that is {kind_of(key)}: keys are text")
            _well_formed(key)
            _check_json(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_json(item, depth + 1)
    else:
        _check_json_scalar(value)


def _check_json_scalar(value: object) -> None:
    if isinstance(value, str):
        _well_formed(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Wrong("holds inf or nan, which JSON does not have")
    elif isinstance(value, int) and abs(value) > _INT_MAX:
        raise Wrong("holds a number beyond 64 bits: write it in quotes")
    elif not isinstance(value, int | float | None):
        raise Wrong(f"holds {kind_of(value)}, which JSON does not have: write it in quotes")


Line: TypeAlias = Annotated[str, AfterValidator(_one_line)]
"""Text that is not empty and has no control character."""

Argument: TypeAlias = Annotated[str, AfterValidator(_no_control)]
"""Text without control characters, maybe empty."""

Prose: TypeAlias = Annotated[str, AfterValidator(_no_odd_control)]
"""Text that may have line ends and tabs."""

Input: TypeAlias = Annotated[str, AfterValidator(_no_nul)]
"""Any text but NUL."""

Timezone: TypeAlias = Annotated[str, AfterValidator(_zone)]
"""A name of the tz database."""

AbsolutePath: TypeAlias = Annotated[str, AfterValidator(_absolute)]
Duration: TypeAlias = Annotated[Micros, PlainValidator(_duration), AfterValidator(_more_than_zero)]
DurationOrZero: TypeAlias = Annotated[Micros, PlainValidator(_duration)]
Moment: TypeAlias = Annotated[datetime, PlainValidator(_moment)]
JsonObject: TypeAlias = Annotated[dict[str, Any], PlainValidator(_json_object)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
CountFromOne: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]
ByteSize: TypeAlias = Annotated[int, PlainValidator(_byte_size)]
