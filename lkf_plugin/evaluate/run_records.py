"""Names, fills and finds the records of one run's cells, for every command that measures a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lkf_plugin.evaluate.identity import (
    LKF,
    group,
    method_of,
    precision_of,
    short_tokenizer_name,
    subject_of,
)
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import identity_digest
from lkf_plugin.records.provenance import code_version, library_versions, machine, path_digest
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import find_record, write_record
from lkf_plugin.runs.load import LoadedRun

OWN = "own"  # row of another method's own sampler
STEPLESS = ("ar",)  # methods whose samples do not depend on J
SAMPLES, LIKELIHOOD, INFORMATION, ENDS = "samples", "likelihood", "information", "ends"  # kinds


@dataclass(frozen=True)
class Cell:
    """What is to be measured of a run: a kind of measurement, and all its settings.

    Attributes:
        kind: ``samples``, ``likelihood``, ...
        row: how it is called in tables.
        settings: all that the figures depend on beside the run.
    """

    kind: str
    row: str
    settings: Mapping[str, Any]

    @property
    def steps(self) -> int | None:
        """J, where there are steps."""
        return (self.settings.get("sampling") or {}).get("steps")


@dataclass
class RunRecords:
    """The records of one run.

    Attributes:
        run: the trained model.
        folder: of the records.
        seed: of what is measured.
        host: ``builtin`` or ``mdlm``.
    """

    run: LoadedRun
    folder: Path
    seed: int
    host: str = "builtin"

    @property
    def components(self) -> int:
        """M."""
        return int(self.run.config.model.get("num_components", 1))

    @functools.cached_property
    def subject(self) -> dict[str, Any]:
        """What is measured."""
        prepared = self.run.prepared
        return subject_of(
            self.run.config,
            self.host,
            path_digest(self.run.checkpoint),
            prepared.digest,
            str(prepared.manifest["covers"]["tokenizer"]),
        )

    @functools.cached_property
    def _code(self) -> str:
        return code_version()

    def name(self, row: str, steps: int | None) -> str:
        """Name of a cell, the start of its file's name: ``sotu.M8.commit.J4``.

        Another method's name stands in place of M: ``sotu.sedd.own.J4``.
        """
        return cell_name(
            self.run.config.data.train, method_of(self.run.config), self.components, row, steps
        )

    def find(self, cell: Cell) -> Record | None:
        """The cell's record, if it is there."""
        digest = identity_digest(cell.kind, self.subject, cell.settings)
        return find_record(self.folder, digest)

    def write(
        self, cell: Cell, metrics: Mapping[str, Estimate], calls: float | None = None
    ) -> Record:
        """Writes a cell's record.

        Args:
            cell: what was measured.
            metrics: estimates by name.
            calls: network calls a sample by the method's own count.
        """
        config = self.run.config
        counted = {} if calls is None else {"calls": Estimate(float(calls), 0.0)}
        record = Record(
            kind=cell.kind,
            name=self.name(cell.row, cell.steps),
            subject=self.subject,
            settings=cell.settings,
            metrics={**metrics, **counted},
            labels={
                "row": cell.row,
                "corpus": config.data.train,
                "wrap": bool(config.data.wrap),
                "tokenizer": short_tokenizer_name(config),
                "trained_steps": self.run.step,
            },
            code=self._code,
            libraries=library_versions(),
            machine=machine(),
        )
        write_record(record, self.folder)
        return record

    def likelihood(self, sequences: int, network: str, **how: Any) -> Cell:
        """The likelihood of held-out sequences.

        Args:
            sequences: how many.
            network: its floating type.
            how: whatever else the estimator depends on.
        """
        settings = {
            "length": int(self.run.config.model.length),
            "sequences": sequences,
            "seed": self.seed,
            "ema": self.run.module.ema is not None,
            "precision": precision_of(network),
            "training": group(self.run.config, "training"),
            **how,
        }
        return Cell(LIKELIHOOD, LIKELIHOOD, settings)


def cell_name(corpus: str, method: str, components: int, row: str, steps: int | None) -> str:
    """``sotu.M8.commit.J4``; another method's name stands in place of M."""
    who = f"M{components}" if method == LKF else method
    name = f"{corpus}.{who}.{row}"
    return name if steps is None else f"{name}.J{steps}"
