"""The digest of a measurement: what makes two numbers the same number.

It is taken over whole groups of settings. A key that is added to a group is in the digest without
a word; what is left out must be named, with the reason why no number depends on it
(``evaluate.identity.WITHOUT_EFFECT``).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

SHORT = 12  # hex digits of a file's name


def canonical(value: Any) -> Any:
    """A value as JSON knows it: mappings with string keys, lists, and plain scalars.

    Raises:
        ValueError: anything else, and numbers that are not finite.
    """
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"{value!r} is no plain value")


def identity_digest(kind: str, subject: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of what was measured and how.

    The order of keys does not enter. A whole number is the same as an integer or as a float.
    """
    content = {"kind": kind, "subject": _leveled(subject), "settings": _leveled(settings)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _leveled(value: Any) -> Any:
    """``8.0`` as ``8``: YAML, JSON and the command line write either for the same number."""
    value = canonical(value)
    if isinstance(value, dict):
        return {key: _leveled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_leveled(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` as ``("a.b", 1)``; lists are values."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value
