"""The types that settings have: each checks a value, and says in words what it allows.

They are strict where a slip is likely (``true`` is no number, ``inf`` and ``nan`` are none either)
and take numbers as YAML and a command line give them: ``1e3`` where a whole number is meant, a
quoted ``'1e-3'``, a number where a name is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

A_PATH = "a path"
LARGEST = 2**53  # whole numbers beyond it are lost in floating point


class Group(BaseModel):
    """A group of settings. Its defaults stand in the YAML files, so every key must be there."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class FieldType:
    """What all types of settings share."""

    def words(self) -> str:
        """What is allowed, to follow "must be"."""
        raise NotImplementedError

    def __call__(self, value: Any) -> Any:
        """The value in its type.

        Raises:
            ValueError: it is not allowed.
        """
        raise NotImplementedError

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        function: Callable[[Any], Any] = self
        return core_schema.no_info_plain_validator_function(function)


@dataclass(frozen=True)
class Number(FieldType):
    """A finite number in a range.

    Attributes:
        low, high: ends of the range, None for no end.
        open_low, open_high: whether an end is left out.
        whole: whole numbers only.
        null: null is allowed, too.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    whole: bool = False
    null: bool = False

    def words(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        low, high = _figure(self.low), _figure(self.high)
        if low is not None and high is not None:
            if self.open_low and self.open_high:
                where = f" between {low} and {high}, both left out"
            elif self.open_low or self.open_high:
                where = f" in {'(' if self.open_low else '['}{low}, {high}"
                where += ")" if self.open_high else "]"
            else:
                where = f" from {low} to {high}"
        elif low is not None:
            where = f" above {low}" if self.open_low else f" of at least {low}"
        elif high is not None:
            where = f" below {high}" if self.open_high else f" of at most {high}"
        else:
            where = ""
        return kind + where + (", or null" if self.null else "")

    def __call__(self, value: Any) -> float | int | None:
        if value is None and self.null:
            return None
        number = as_number(value)
        if self.whole:
            if number != int(number) or abs(number) > LARGEST:
                raise ValueError(self.words())
            number = int(number)
        if self.low is not None and (number < self.low or self.open_low and number == self.low):
            raise ValueError(self.words())
        if self.high is not None and (number > self.high or self.open_high and number == self.high):
            raise ValueError(self.words())
        return number if self.whole else float(number)


def as_number(value: Any) -> float | int:
    """A finite number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        value = float(value) if not value.strip().lstrip("+-").isdecimal() else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    if isinstance(value, int) and abs(value) > 10**300 or not math.isfinite(value):
        raise ValueError("no finite number")
    return value


def _figure(bound: float | None) -> str | None:
    return None if bound is None else f"{bound:,}".replace(",", "")


@dataclass(frozen=True)
class Choice(FieldType):
    """One of some values. What is none of them is called unknown."""

    options: tuple[Any, ...]

    def __init__(self, *options: Any) -> None:
        object.__setattr__(self, "options", tuple(dict.fromkeys(options)))

    def words(self) -> str:
        return alternatives(self.options)

    def __call__(self, value: Any) -> Any:
        for option in self.options:
            if type(value) is type(option) and value == option:
                return value
        raise ValueError(self.words())


def alternatives(options: tuple[Any, ...]) -> str:
    """``a, b or c``."""
    named = {None: "null", True: "true", False: "false"}
    *first, last = (
        named[option] if option is None or isinstance(option, bool) else str(option)
        for option in options
    )
    return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True)
class Words(FieldType):
    """A text.

    Attributes:
        kind: what it is called.
        empty, null: whether these are allowed.
    """

    kind: str = "text"
    empty: bool = False
    null: bool = False

    def words(self) -> str:
        return self.kind + ("" if self.empty else " that is not empty") + ", or null" * self.null

    def __call__(self, value: Any) -> str | None:
        if value is None and self.null:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or "\0" in value or not (self.empty or value.strip()):
            raise ValueError(self.words())
        return value


def is_path(field: FieldInfo) -> bool:
    """Whether a setting is a path (``Words("a path")``)."""
    return any(isinstance(one, Words) and one.kind == A_PATH for one in field.metadata)


class OnOff(FieldType):
    """``true`` or ``false``, and nothing that resembles them."""

    def words(self) -> str:
        return "true or false"

    def __call__(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(self.words())
        return value


class Arguments(FieldType):
    """Arguments of a function, or null."""

    def words(self) -> str:
        return "null, or a group of arguments"

    def __call__(self, value: Any) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            raise ValueError(self.words())
        return value or {}


class Entries(FieldType):
    """What Hydra builds: entries with a ``_target_`` each, or null."""

    def words(self) -> str:
        return "null, or a group of entries with a _target_ each"

    def __call__(self, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(self.words())
        for entry in value.values():
            if not isinstance(entry, dict) or not _is_target(entry.get("_target_")):
                raise ValueError(self.words())
        return value


class Target(FieldType):
    """The dotted name of what Hydra builds."""

    def words(self) -> str:
        return "the dotted name of a class or function"

    def __call__(self, value: Any) -> str:
        if not _is_target(value):
            raise ValueError(self.words())
        return str(value)


def _is_target(value: Any) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


Count = Annotated[int, Number(low=1, whole=True)]
Whole = Annotated[int, Number(low=0, whole=True)]
Real = Annotated[float, Number()]
Positive = Annotated[float, Number(low=0, open_low=True)]
NotNegative = Annotated[float, Number(low=0)]
Share = Annotated[float, Number(low=0, high=1)]
Fraction = Annotated[float, Number(low=0, high=1, open_high=True)]
Inside = Annotated[float, Number(low=0, high=1, open_low=True, open_high=True)]
Flag = Annotated[bool, OnOff()]
Name = Annotated[str, Words()]
Path = Annotated[str, Words(A_PATH)]
MaybePath = Annotated[str | None, Words(A_PATH, empty=True, null=True)]
TargetName = Annotated[str, Target()]
EntryGroup = Annotated[dict[str, Any], Entries()]
