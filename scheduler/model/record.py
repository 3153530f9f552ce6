"""Values that do not change, made fast.

A frozen dataclass sets each field by a call of its own: three times the price of a plain one, and a run has
forty fields. So the type checker is told that these are frozen, and refuses whoever changes one; the
interpreter is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A dataclass with slots, made by keyword, hashed by its fields, frozen for the type checker."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def row(cls: type[T]) -> type[T]:
    """A record of many fields that is copied with changes (`altered`): without slots, so in one step of C."""
    return dataclass(kw_only=True, unsafe_hash=True)(cls)


def altered(value: T, /, **changes: Any) -> T:
    """A copy of the row with these fields changed; as `dataclasses.replace`, which looks at every field.

    Raises:
        TypeError: it has no such field.
    """
    fields = value.__dict__
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(changes.keys() - fields.keys())}")
    copy: T = object.__new__(type(value))
    copy.__dict__.update(fields, **changes)
    return copy
