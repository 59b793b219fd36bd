"""What a validation leaves in the run folder, on either host: figures and a record."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import lightning as L
from omegaconf import DictConfig

from lkf_plugin.data import PreparedData
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.few_step import few_step_of_validation
from lkf_plugin.evaluate.likelihood import nelbo_estimates
from lkf_plugin.evaluate.run_records import Cell, RunRecords
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.method import given_name, is_exact, method_name, method_of
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.evaluation_name import evaluation_name
from lkf_plugin.records.provenance import path_digest
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import flatten, plain, run_record, write_or_keep
from lkf_plugin.train.checkpoint import share_file
from lkf_plugin.train.sequence_errors import SequenceErrors

FEW_STEP_OF = "bound of this model's own sampler of J steps, a student's as any other's"
RECORDS, LIKELIHOODS = "records", "likelihoods"  # in the run folder


def write_likelihood(run: LoadedRun, trainer: L.Trainer) -> dict[str, Any]:
    """Writes the figures and the likelihood's record into the run folder.

    The figures are a file of ``likelihoods``, see ``evaluation_name``; ``ppl_eval.json`` is the
    newest of them.

    Args:
        run: what was validated, on either host.
        trainer: that did it, with a ``SequenceErrors`` among its callbacks.

    Returns:
        The contents of ``ppl_eval.json``: MDLM's metrics, and under ``likelihood`` the NELBO with
        its standard error over sequences and its perplexities, see ``nelbo_estimates``; with
        ``eval.steps`` also the bounds of few-step samplers, and under ``few_step_nats`` those of
        each sequence.

    Raises:
        UserError: nothing was evaluated.
    """
    config = run.config
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if "val/nll" not in metrics:
        raise UserError("mode=ppl_eval evaluated no sequence: raise trainer.limit_val_batches.")
    (errors,) = [one for one in _callbacks(trainer) if isinstance(one, SequenceErrors)]
    nelbo = Estimate(metrics["val/nll"], errors.se, errors.sequences)
    estimates = nelbo_estimates(nelbo, smallest_time(config))
    label = method_of(config).likelihood
    report: dict[str, Any] = {
        "metrics": metrics,
        **({"likelihood_of": label} if label else {}),
        "likelihood": {name: dataclasses.asdict(one) for name, one in estimates.items()},
        **provenance(config, run.prepared, run.module, run.checkpoint, run.step),
    }
    few = few_step_of_validation(run, errors.sequences)
    if trainer.is_global_zero:
        if few is not None:
            estimates |= few.estimates
            metrics |= {f"val/{name}": one.value for name, one in few.estimates.items()}
            report["metrics"] = metrics
            report["likelihood"] |= {n: dataclasses.asdict(e) for n, e in few.estimates.items()}
            report["few_step_nats"] = few.sequences
            report |= {"few_steps": list(config.eval.steps), "few_steps_replay": config.eval.replay}
            report["few_step_likelihood_of"] = FEW_STEP_OF
        name = evaluation_name(flatten(plain(config)), report["checkpoint_sha256"], "likelihood")
        folder = Path(config.run_dir)
        target = folder / LIKELIHOODS / f"{name}.json"
        write_or_keep(target, json.dumps(report, indent=2) + "\n")
        share_file(target, folder / "ppl_eval.json")
        records = RunRecords(run, Path(config.run_dir) / RECORDS, config.seed, report["host"])
        records.write(_cell(records, config, errors.sequences), estimates)
        for name, value in sorted(metrics.items()):
            print(f"{name} {value:.6f}")
        if label:
            print(f"val/nll: {label}")
        if few is not None:
            print(f"val/nll@J: {FEW_STEP_OF}")
        print(f"written to {target}")
    return report


def _cell(records: RunRecords, config: DictConfig, sequences: int) -> Cell:
    """A validation's likelihood: its draws are seeded for each batch of each process."""
    validation: dict[str, Any] = {
        "batch_size": config.loader.eval_batch_size,
        "devices": config.trainer.devices * config.trainer.num_nodes,
    }
    if config.eval.get("steps"):
        validation["steps"] = list(config.eval.steps)
    if config.eval.get("replay"):
        validation["replay"] = str(config.eval.replay)
    precision = str(config.trainer.precision)
    return records.likelihood(sequences, precision, estimator="validation", validation=validation)


def _callbacks(trainer: L.Trainer) -> list[L.Callback]:
    return trainer.callbacks  # type: ignore[attr-defined]  # set by Lightning's connector


def smallest_time(config: DictConfig) -> float | None:
    """Where the average over times begins; None for an exact likelihood and for discrete steps."""
    if is_exact(method_name(config)) or config.T > 0:
        return None
    return float(config.training.sampling_eps)


def provenance(
    config: DictConfig, prepared: PreparedData, module: Any, checkpoint: Path, step: int | None
) -> dict[str, Any]:
    """Everything that an evaluation's numbers depend on."""
    host = "builtin" if isinstance(module, Diffusion) else "mdlm"
    return {
        **run_record(host, prepared.digest),
        "checkpoint": str(checkpoint),
        "checkpoint_sha256": path_digest(checkpoint),
        "step": step,
        "seed": config.seed,
        "ema": module.ema is not None,
        "precision": str(config.trainer.precision),
        "model": config.model.name,
        "num_components": config.model.get("num_components", 1),
        "latent": config.model.get("latent"),
        "block_components": config.model.get("block_components", 1),
        "block_length": config.model.get("block_length"),
        "latent_blocks": config.model.get("latent_blocks"),
        "latent_site": config.model.get("latent_site"),
        "router_reads": config.model.get("router_reads"),
        "trunk": config.model.get("trunk"),
        "method": given_name(config),
        "parameterization": config.parameterization,
        "loss": config.loss.name,
        "corpus": config.data.train,
        "valid": config.data.valid,
        "tokenizer": config.data.tokenizer_name_or_path,
        "vocab_size": prepared.vocab_size,
        "wrap": config.data.wrap,
        "length": config.model.length,
        "T": config.T,
        "time_conditioning": config.time_conditioning,
        "antithetic_sampling": config.training.antithetic_sampling,
        "importance_sampling": config.training.importance_sampling,
        "change_of_variables": config.training.change_of_variables,
        "sampling_eps": config.training.sampling_eps,
        "eval_batch_size": config.loader.eval_batch_size,
        "devices": config.trainer.devices * config.trainer.num_nodes,
        "limit_val_batches": config.trainer.limit_val_batches,
        **(module.training_facts() if isinstance(module, Diffusion) else {}),
    }
