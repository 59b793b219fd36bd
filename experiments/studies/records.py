"""The studies' measurements as records: one of kind ``study`` for each cell.

The subject is the training run behind it (``studies.recipe.Recipe``), none for theory; the setting
is the study. Top-level estimates and numbers are the record's metrics; curves, tables and whatever
else is nested are its series. Unit: nats, unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.studies.recipe import Recipe
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import identity_digest
from lkf_plugin.records.provenance import code_version, library_versions, machine
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import find_record, write_record

KIND = "study"


def records_folder(root: Path, study: str) -> Path:
    """Where a study's records lie under the studies' folder."""
    return root / "records" / study


def find_recorded(root: Path, study: str, recipe: Recipe | None) -> Record | None:
    """The record of a study's cell, if it is there."""
    digest = identity_digest(KIND, _subject(recipe), {"study": study})
    return find_record(records_folder(root, study), digest)


def write_measured(
    root: Path, study: str, name: str, recipe: Recipe | None, measured: Mapping[str, Any]
) -> Record:
    """Writes a cell's record.

    Args:
        root: the studies' folder.
        study, name: what it is called.
        recipe: the training run behind it.
        measured: estimates, numbers, and nested series of them.
    """
    record = study_record(
        study, name, recipe, measured, code_version(), library_versions(), machine()
    )
    write_record(record, records_folder(root, study))
    return record


def study_record(
    study: str,
    name: str,
    recipe: Recipe | None,
    measured: Mapping[str, Any],
    code: str,
    libraries: Mapping[str, str],
    machine: Mapping[str, Any],
) -> Record:
    """The record of a cell, made with a code, libraries and a machine."""
    figures = {key: value for key, value in measured.items() if _is_figure(value)}
    return Record(
        kind=KIND,
        name=name,
        subject=_subject(recipe),
        settings={"study": study},
        metrics={
            key: value if isinstance(value, Estimate) else Estimate(value)
            for key, value in figures.items()
        },
        series={key: _plain(value) for key, value in measured.items() if key not in figures},
        code=code,
        libraries=libraries,
        machine=machine,
    )


def study_of(record: Record) -> str:
    """The study that a record belongs to."""
    return str(record.setting("study"))


def recipe_values(record: Record) -> dict[str, Any] | None:
    """The training run behind a record, as plain values; none for theory."""
    values: dict[str, Any] | None = record.subject.get("recipe")
    return values


def measured_values(record: Record) -> dict[str, Any]:
    """Metrics and series by name; an estimate is {"value": v, "se": e}, a number is itself."""
    figures = {
        name: one.value if one.se is None else {"value": one.value, "se": one.se}
        for name, one in record.metrics.items()
    }
    return {**record.series, **figures}


def _subject(recipe: Recipe | None) -> dict[str, Any]:
    return {} if recipe is None else {"recipe": dataclasses.asdict(recipe)}


def _is_figure(value: Any) -> bool:
    return isinstance(value, Estimate | int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return {"value": value.value, "se": value.se}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
