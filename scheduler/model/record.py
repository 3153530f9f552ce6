"""Values that do not change, made fast.

A frozen dataclass sets each field by a call of its own: three times the price of a plain one, and a run has
forty fields. So the type checker is told that these are frozen, and refuses whoever changes one; the
interpreter is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A dataclass with slots, made by keyword, hashed by its fields, frozen as far as the type checker sees."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
