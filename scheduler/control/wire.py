"""Bodies as JSON, read more strictly than the standard library does where that would lose or break something.

Reading one never holds the loop for long: the number of values in a body is bounded as well as its size.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Annotated, Any, Final, TypeAlias

from pydantic import WithJsonSchema

Json: TypeAlias = Annotated[Any, WithJsonSchema({})]
"""A field of any JSON value. `read_json` or the store has judged it, so no model walks through it again."""

MAX_VALUES: Final = 100_000
"""Commas outside of strings; a megabyte of `[],[],…` would take the loop for a tenth of a second."""

MAX_DEPTH: Final = 64
"""Levels of arrays and objects; what reads the value later may be recursive."""

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_json(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        json.JSONDecodeError: it is not JSON (NaN is none), a name stands twice in one object, a string holds
            half a character, or it is nested too deeply or has too many values.
    """
    text = _text(body)
    if text.count(",") > MAX_VALUES and _STRING.sub("", text).count(",") > MAX_VALUES:
        raise _bad(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError:
        raise
    except RecursionError as bad:
        raise _bad("nested too deeply") from bad
    except UnicodeEncodeError as bad:
        raise _bad("half a character (a lone surrogate) in a string") from bad
    except ValueError as bad:
        raise _bad(str(bad)) from bad
    if _is_deep(value):
        raise _bad(f"nested more than {MAX_DEPTH} levels deep")
    return value


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as bad:
        raise _bad("not UTF-8", bad.start) from bad


def _bad(message: str, position: int = 0) -> json.JSONDecodeError:
    return json.JSONDecodeError(message, "", position)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice[:80]!r} stands twice in one object")
    return table


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
