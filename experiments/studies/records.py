"""The studies' records: one JSON file a measurement.

They are no result records of a text run (no tokenizer, judge or prepared corpus is involved), so
they have a plain form of their own::

    {"schema": 1, "study": "hidden", "name": "hidden-M16-n700-s0-0123456789",
     "recipe": {...} or null, "metrics": {...}, "code": "0.1.0+g...", "torch": "2.13.0",
     "machine": {...}}

``recipe`` is the training run (``studies.recipe.Recipe``); ``metrics`` holds numbers, lists of
numbers, and estimates as {"value": v, "se": e}. No time stamp, keys sorted, written whole or not
at all. Unit of all metrics: nats, unless their name says otherwise.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from experiments.studies.recipe import Recipe
from lkf_plugin.errors import UserError
from lkf_plugin.information.step import Estimate
from lkf_plugin.records.provenance import code_version, machine

SCHEMA = 1
Record = dict[str, Any]


def record_path(root: Path, study: str, name: str) -> Path:
    """Where a record lies."""
    return root / "records" / study / f"{name}.json"


def recorded(
    root: Path,
    study: str,
    name: str,
    recipe: Recipe | None,
    measure: Callable[[], Mapping[str, Any]],
) -> Record:
    """The record of a measurement, measured now unless it is there already.

    Args:
        root: the studies' folder.
        study, name: what it is called.
        recipe: the training run behind it.
        measure: makes the metrics.

    Raises:
        UserError: the file there is no record of this kind.
    """
    path = record_path(root, study, name)
    if path.is_file():
        return read(path)
    content: Record = {
        "schema": SCHEMA,
        "study": study,
        "name": name,
        "recipe": dataclasses.asdict(recipe) if recipe else None,
        "metrics": _plain(measure()),
        "code": code_version(),
        "torch": torch.__version__,
        "machine": machine(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False)
    scratch.write_text(text + "\n", encoding="utf-8")
    os.replace(scratch, path)
    return content


def read(path: Path) -> Record:
    """Reads one record.

    Raises:
        UserError: it is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: remove it and run the study again.") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise UserError(f"{path} is no record of schema {SCHEMA}: remove it, run the study again.")
    return content


def read_study(root: Path, study: str) -> list[Record]:
    """All records of a study, by name."""
    return [read(path) for path in sorted((root / "records" / study).glob("*.json"))]


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return {"value": value.value, "se": value.se}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
