"""From what a check refused to one sentence: the key, its value, and what is allowed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lkf_plugin.errors import UserError
from lkf_plugin.settings.fields import Choice, FieldType

SHOWN = 60  # characters of a value
G = TypeVar("G", bound=BaseModel)


@dataclass(frozen=True)
class Mistake:
    """One refused setting.

    Attributes:
        key: its full name.
        sentence: what to tell.
    """

    key: str
    sentence: str


def read_group(group: type[G], values: Mapping[str, Any], prefix: str, whose: str = "") -> G:
    """A group of settings in its types.

    Args:
        group: its class.
        values: what the configuration says.
        prefix: the group's name.
        whose: see ``unknown_key``.

    Raises:
        UserError: an unknown or missing key, or a value that is not allowed.
    """
    try:
        return group.model_validate({str(key): value for key, value in values.items()})
    except ValidationError as error:
        detail = error.errors(include_url=False, include_context=False)[0]
        raise UserError(mistake_of(detail, group, prefix, whose).sentence) from error


def mistake_of(
    error: ErrorDetails, group: type[BaseModel], prefix: str, whose: str = ""
) -> Mistake:
    """What pydantic refused in a group, in words."""
    path = [str(part) for part in error["loc"]]
    key = ".".join((prefix, *path) if prefix else path)
    holder, field = _find(group, path)
    if error["type"] == "extra_forbidden":
        known = [_name(*item) for item in holder.model_fields.items()]
        return Mistake(key, unknown_key(key, known, whose))
    if error["type"] == "missing":
        return Mistake(key, f"{key} is missing: it must be {_words(field)}.")
    return Mistake(key, refused(key, error["input"], field))


def refused(key: str, value: Any, field: FieldInfo | None) -> str:
    """A value outside its type or range."""
    choice = _type_of(field)
    if isinstance(choice, Choice) and len(choice.options) > 1:
        return f"{key}={show(value)} is unknown: take {choice.words()}."
    return f"{key}={show(value)} must be {_words(field)}."


def unknown_key(key: str, known: Sequence[str], whose: str = "") -> str:
    """A key that its group does not have.

    Args:
        key: its full name.
        known: names of the group's keys.
        whose: what decides which keys the group has (``data.kind=text``); empty if nothing does.
    """
    prefix, _, name = key.rpartition(".")
    wrong = f"not an option of {whose}" if whose else "no setting"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"{key} is {wrong}: did you mean {prefix}{'.' if prefix else ''}{near[0]}?"
    there = ", ".join(sorted(known))
    return f"{key} is {wrong}: {prefix or 'the configuration'} has {there}."


def show(value: Any) -> str:
    """A value as YAML would have it, on one line, not too long."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _name(attribute: str, field: FieldInfo) -> str:
    return field.alias or attribute


def _find(group: type[BaseModel], path: Sequence[str]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost group of a path, and the field there, if it has one of that name."""
    field: FieldInfo | None = None
    for part in path:
        if field is not None:
            inner = field.annotation
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                break
            group = inner
        names = {_name(*item): item[1] for item in group.model_fields.items()}
        field = names.get(part)
    return group, field


def _type_of(field: FieldInfo | None) -> FieldType | None:
    kinds = [] if field is None else [one for one in field.metadata if isinstance(one, FieldType)]
    return kinds[0] if kinds else None


def _words(field: FieldInfo | None) -> str:
    kind = _type_of(field)
    return "a group of settings" if kind is None else kind.words()


def unresolved(key: str, error: Exception) -> str:
    """Why a setting cannot be worked out; a resolver's own sentence stands for itself."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    _, told, sentence = reason.partition("UserError raised while resolving interpolation: ")
    return sentence if told else f"{key} cannot be worked out: {reason}"
