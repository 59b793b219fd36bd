"""Names and fills the records of one run's cells, for every command that measures a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.judge.judge import Judge
from lkf_plugin.methods.settings import NONE, baseline_name
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.provenance import (
    checkpoint_digest,
    code_version,
    library_versions,
    machine,
)
from lkf_plugin.records.record import ResultRecord, Scalar, write_record
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import flatten

OWN = "own"  # row of another method's own sampler
STEPLESS = ("ar",)  # methods whose samples do not depend on J


def method_of(config: DictConfig) -> str | None:
    """Name of the method that is not LKF: the baseline, or MDLM's own network; None for LKF."""
    name = baseline_name(config)
    if name != NONE:
        return name
    if config.model.type == "lkf":
        return None
    return "mdlm" if config.parameterization == "subs" else str(config.parameterization)


def precision_name(network: str, draws: str) -> str:
    """How a record states its precision: the network's, then that of the token draws."""
    return f"network {network}, draws {draws}"


def likelihood_precision(network: str) -> str:
    """The same for a likelihood, for which no token is drawn."""
    return f"network {network}"


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

    def cell_name(self, row: str, steps: int | None) -> str:
        """File name of a cell's record, without its ending: ``sotu.M8.commit.J4``.

        Another method's name stands in place of M: ``sotu.sedd.own.J4``.
        """
        who = method_of(self.run.config) or f"M{self.components}"
        name = f"{self.run.config.data.train}.{who}.{row}"
        return name if steps is None else f"{name}.J{steps}"

    @functools.cached_property
    def checkpoint(self) -> str:
        """Digest of the checkpoint."""
        return checkpoint_digest(self.run.checkpoint)

    @functools.cached_property
    def _code(self) -> str:
        return code_version()

    def write(
        self,
        row: str,
        metrics: dict[str, Estimate],
        *,
        samples: int,
        precision: str,
        steps: int | None = None,
        policy: str | None = None,
        decode: Mapping[str, Any] | None = None,
        calls: float | None = None,
        judge: Judge | None = None,
        more: Mapping[str, Scalar] | None = None,
    ) -> ResultRecord:
        """Writes one cell's record.

        Args:
            row: how it was decoded, or ``LIKELIHOOD``, ``information``, ...
            metrics: estimates by name.
            samples: that were drawn, or sequences that were evaluated.
            precision: see ``precision_name``.
            steps: J.
            policy: the decoding policy.
            decode: its settings.
            calls: network calls a sample by the method's own count.
            judge: who judged the samples.
            more: further settings that the figures depend on.
        """
        config, prepared = self.run.config, self.run.prepared
        settings: dict[str, Scalar] = {"row": row, "trained_steps": self.run.step}
        settings |= {f"decode.{key}": value for key, value in (decode or {}).items()}
        settings |= _of_the_method(config)
        record = ResultRecord(
            cell=self.cell_name(row, steps),
            metrics=metrics,
            host=self.host,
            code=self._code,
            libraries=library_versions(),
            corpus=config.data.train,
            corpus_digest=prepared.digest,
            wrap=bool(config.data.wrap),
            tokenizer=Path(str(config.data.tokenizer_name_or_path)).name,
            tokenizer_digest=str(prepared.manifest["covers"]["tokenizer"]),
            checkpoint_digest=self.checkpoint,
            ema=self.run.module.ema is not None,
            num_components=self.components,
            latent_blocks=int(config.model.get("latent_blocks", 0)),
            policy=policy,
            steps=steps,
            calls=calls,
            samples=samples,
            length=int(config.model.length),
            precision=precision,
            judge=judge.label if judge else None,
            judge_revision=judge.revision if judge else None,
            judge_dtype=str(judge.dtype).removeprefix("torch.") if judge else None,
            seed=self.seed,
            settings={**settings, **(more or {})},
            machine=machine(),
        )
        write_record(record, self.folder)
        return record


def _of_the_method(config: DictConfig) -> dict[str, Scalar]:
    """``baseline`` and its own settings; nothing for LKF."""
    method = method_of(config)
    if method is None:
        return {}
    group = OmegaConf.to_container(config.baseline, resolve=True) if "baseline" in config else {}
    assert isinstance(group, dict)
    own = {f"baseline.{key}": value for key, value in flatten(group).items() if key != "name"}
    return {"baseline": method, **own}
