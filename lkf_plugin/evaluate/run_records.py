"""Names, fills and finds the records of one run's cells, for every command that measures a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import POLICIES, read_options
from lkf_plugin.decode.sample import uses_own_sampler
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.identity import (
    beside_of,
    decode_of,
    group,
    precision_of,
    sampling_of,
    short_tokenizer_name,
    subject_of,
)
from lkf_plugin.methods.method import LKF, method_name, uses_steps
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import identity_digest
from lkf_plugin.records.provenance import code_version, library_versions, machine, path_digest
from lkf_plugin.records.record import Record, Scalar
from lkf_plugin.records.store import find_record, write_record
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import load_settings

OWN = "own"  # row of another method's own sampler
SAMPLES, LIKELIHOOD, INFORMATION, ENDS = "samples", "likelihood", "information", "ends"  # kinds
FEW_STEP = "few_step"
FIRST_SEED = 1  # of a training whose records' names say none
ROUND_FACTS = ("round", "trained_for_steps", "teacher_calls")  # of a training, kept as labels


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
        of_data: whether what is measured is the run's data alone, not its model.
    """

    run: LoadedRun
    folder: Path
    seed: int
    host: str = "builtin"
    of_data: bool = False

    @property
    def components(self) -> int:
        """M."""
        model = self.run.config.model
        return int(model.get("num_components", 1)) * int(model.get("block_components", 1))

    @functools.cached_property
    def subject(self) -> dict[str, Any]:
        """What is measured."""
        prepared = self.run.prepared
        tokenizer = str(prepared.manifest["covers"]["tokenizer"])
        if self.of_data:
            return {"corpus": prepared.digest, "tokenizer": tokenizer}
        checkpoint = path_digest(self.run.checkpoint)
        return subject_of(self.run.config, self.host, checkpoint, prepared.digest, tokenizer)

    @functools.cached_property
    def _code(self) -> str:
        return code_version()

    def name(self, row: str, steps: int | None) -> str:
        """Name of a cell, the start of its file's name: ``sotu.M8.commit.J4``.

        Another method's name stands in place of M: ``sotu.sedd.own.J4``.
        """
        corpus = self.run.config.data.train
        if self.of_data:
            return f"{corpus}.{row}"
        method = method_name(self.run.config)
        who = self.training.get("round"), self.training["training_seed"]
        return cell_name(corpus, method, self.components, row, steps, *who)

    @functools.cached_property
    def training(self) -> dict[str, Scalar]:
        """Labels: the seed of the training, and of a method with rounds what they were."""
        module = self.run.module
        facts: dict[str, Any] = module.training_facts() if hasattr(module, "training_facts") else {}
        config = self.run.config  # of the command, whose seed is that of the evaluation
        begun = load_settings(Path(config.run_dir)) or {}
        labels: dict[str, Scalar] = {"training_seed": int(begun.get("seed", config.seed))}
        return labels | {key: facts[key] for key in ROUND_FACTS if key in facts}

    def find(self, cell: Cell) -> Record | None:
        """The cell's record, if it is there."""
        digest = identity_digest(cell.kind, self.subject, cell.settings)
        return find_record(self.folder, digest)

    def write(
        self,
        cell: Cell,
        metrics: Mapping[str, Estimate],
        drawn: Decoded | None = None,
        series: Mapping[str, Any] | None = None,
        **labels: Scalar,
    ) -> Record:
        """Writes a cell's record.

        Args:
            cell: what was measured.
            metrics: estimates by name.
            drawn: the samples, whose network calls are counted in the method's way and as run.
            series: plain data beside.
            labels: further names for tables.
        """
        config, counted = self.run.config, {}
        if drawn is not None:
            counted = {
                "calls": Estimate(drawn.steps_calls, 0.0),
                "network_calls": Estimate(drawn.network_calls, None, len(drawn.x_GL)),
            }
        record = Record(
            kind=cell.kind,
            name=self.name(cell.row, cell.steps),
            subject=self.subject,
            settings=cell.settings,
            metrics={**metrics, **counted},
            series=series or {},
            labels={
                "row": cell.row,
                "corpus": config.data.train,
                "wrap": bool(config.data.wrap),
                "tokenizer": short_tokenizer_name(config),
                "trained_steps": self.run.step,
                **({} if self.of_data else self.training),
                **labels,
            },
            code=self._code,
            libraries=library_versions(),
            machine=machine(),
        )
        write_record(record, self.folder)
        return record

    def samples(
        self,
        decode: Mapping[str, Any],
        steps: int,
        samples: int,
        network: str,
        judged_by: Mapping[str, Any],
        self_bleu: int = 0,
        **beside: Any,
    ) -> Cell:
        """Samples by a policy, or by the host's or the method's own sampler.

        Args:
            decode: settings as in the Hydra group ``decode``.
            steps: J.
            samples: how many.
            network: its floating type.
            judged_by: the judge as ``Quality.judged_by`` has it.
            self_bleu: texts that enter self-BLEU.
            beside: further arguments of ``identity.beside_of``.

        Raises:
            UserError: a policy that the model has not.
        """
        config, module = self.run.config, self.run.module
        policy = module.sampler_of(read_options(decode).policy)
        own = uses_own_sampler(module, decode)
        resolved = {**decode, "policy": policy}
        method = method_name(config)
        plain = own and policy not in POLICIES and not method.startswith(LKF)
        wide = not own or bool(OmegaConf.select(config, "method.float64_draws"))
        settings = {
            "length": int(config.model.length),
            "seed": self.seed,
            "ema": module.ema is not None,
            "precision": precision_of(network, "float64" if wide else "float32"),
            "judge": judged_by,
            "samples": samples,
            "decode": decode_of(decode, policy, own),
            "sampling": sampling_of(config, steps if uses_steps(method) else None),
            "eval": beside_of(config, self_bleu, **beside),
        }
        return Cell(SAMPLES, OWN if plain else row_name(resolved), settings)

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


def cell_name(
    corpus: str,
    method: str,
    components: int,
    row: str,
    steps: int | None,
    number: object = None,
    seed: object = FIRST_SEED,
) -> str:
    """``sotu.M8.commit.J4``; another method's name stands in place of M.

    A round stands behind the method, ``sdtt-r2``, and another training seed than the first behind
    both, ``sdtt-r2-seed3``.
    """
    if method == LKF:
        who = f"M{components}"
    else:
        many = method.startswith(f"{LKF}-") or components > 1
        who = f"{method}-M{components}" if many else method
    who += "" if number is None else f"-r{number}"
    who += "" if seed == FIRST_SEED else f"-seed{seed}"
    name = f"{corpus}.{who}.{row}"
    return name if steps is None else f"{name}.J{steps}"
