"""Records on disk: one JSON file each, written whole, checked when read, found by their digest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import SHORT
from lkf_plugin.records.record import FORMAT, Record

_FIELDS = {one.name for one in dataclasses.fields(Record)} | {"format", "digest"}


def write_record(record: Record, folder: Path | str) -> Path:
    """Writes ``<folder>/<name>-<digest>.json`` whole or not at all; returns its path.

    A record of the same identity is replaced, whatever its name was.
    """
    target = Path(folder) / record.file_name
    write_atomically(target, record.to_json())
    for other in target.parent.glob(f"*-{record.digest[:SHORT]}.json"):
        if other != target:
            other.unlink(missing_ok=True)
    return target


def find_record(folder: Path | str, digest: str) -> Record | None:
    """The record of an identity in a folder, if it is there.

    Raises:
        UserError: a file of that digest that is no record.
    """
    for path in sorted(Path(folder).glob(f"*-{digest[:SHORT]}.json")):
        record = read_record(path)
        if record.digest == digest:
            return record
    return None


def read_records(folder: Path | str) -> list[Record]:
    """All records under a folder, subfolders included, in the order of their paths.

    Hidden files and folders are left out: writing that was killed leaves such.
    """
    root = Path(folder)
    paths = sorted(root.rglob("*.json"))
    shown = [p for p in paths if not any(x.startswith(".") for x in p.relative_to(root).parts)]
    return [read_record(path) for path in shown]


def read_record(path: Path | str) -> Record:
    """Reads and checks one record.

    Raises:
        UserError: the file is missing, is no JSON, has another format, lacks a key, has a key too
            many, a value of the wrong kind, another digest than its content, or another name.
    """
    path = Path(path)
    content = _read_json(path)
    version = content.get("format")
    if version != FORMAT or isinstance(version, bool):
        old = content.get("schema_version", content.get("schema"))
        stands = f"format {version}" if "format" in content or old is None else f"format {old}"
        raise UserError(f"{path} has {stands}, this code reads {FORMAT}: make the record again")
    missing, surplus = sorted(_FIELDS - set(content)), sorted(set(content) - _FIELDS)
    if missing or surplus:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has unknown {', '.join(surplus)}"
        raise UserError(f"{path} is no record: it {wrong}; remove it and make it again")
    del content["format"]
    digest = content.pop("digest")
    try:
        record = Record(**{**content, "metrics": _estimates(content["metrics"])})
    except UserError as error:
        raise UserError(f"{path} is no record: {error}; remove it and make it again") from None
    if record.digest != digest:
        raise UserError(
            f"{path} was changed: its digest is {str(digest)[:SHORT]} and that of its content is "
            f"{record.digest[:SHORT]}; remove it and make it again"
        )
    if path.name != record.file_name:
        raise UserError(
            f"{path} holds the record {record.file_name}: give it that name, or remove it"
        )
    return record


def _estimates(metrics: Any) -> Any:
    """Estimates from their JSON; what is none is left for the record's check."""
    if not isinstance(metrics, Mapping):
        return metrics
    return {
        name: Estimate(**value) if isinstance(value, dict) and set(value) == _PARTS else value
        for name, value in metrics.items()
    }


_PARTS = {"value", "se", "n"}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the record {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no record: it is not UTF-8 ({error.reason})") from error
    try:
        content = json.loads(text, parse_constant=_refuse, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no record: it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no record: it holds no JSON object")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _no_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice} stands twice")
    return content
