"""mode=ppl_eval: likelihood of the held-out data, and what both hosts write of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import lightning as L
from omegaconf import DictConfig

from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.likelihood import nelbo_estimates
from lkf_plugin.evaluate.run_records import RunRecords, likelihood_precision, method_of
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.settings import baseline_name
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.provenance import checkpoint_digest
from lkf_plugin.records.record import LIKELIHOOD
from lkf_plugin.runs.common import build_module, build_trainer, find_checkpoint, load_weights
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import run_record, write_atomically
from lkf_plugin.train.datamodule import TokenBatches
from lkf_plugin.train.sequence_errors import SequenceErrors

RECORDS = "records"  # in the run folder


def ppl_eval(config: DictConfig) -> dict[str, Any]:
    """Validates a checkpoint on the built-in host; see ``write_likelihood``.

    Returns:
        The contents of ``ppl_eval.json``.
    """
    prepared = prepare(config, splits=("valid",))
    path = find_checkpoint(config)
    module = build_module(config, prepared.tokenizer)
    loaded = load_weights(module, path)
    if config.eval.disable_ema:
        module.ema = None
    trainer = build_trainer(config, logger=False, callbacks=[SequenceErrors()])
    trainer.validate(module, datamodule=TokenBatches(prepared, config), verbose=False)
    return write_likelihood(LoadedRun(config, module, prepared, path, loaded["step"]), trainer)


def write_likelihood(run: LoadedRun, trainer: L.Trainer) -> dict[str, Any]:
    """Writes ``ppl_eval.json`` and the likelihood's record into the run folder.

    Args:
        run: what was validated, on either host.
        trainer: that did it, with a ``SequenceErrors`` among its callbacks.

    Returns:
        The contents of ``ppl_eval.json``: MDLM's metrics, and under ``likelihood`` the NELBO with
        its standard error over sequences and its perplexities, see ``nelbo_estimates``.

    Raises:
        UserError: nothing was evaluated.
    """
    config = run.config
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if "val/nll" not in metrics:
        raise UserError("mode=ppl_eval evaluated no sequence: raise trainer.limit_val_batches.")
    (errors,) = [one for one in _callbacks(trainer) if isinstance(one, SequenceErrors)]
    nelbo = Estimate(metrics["val/nll"], errors.se, errors.sequences)
    found = nelbo_estimates(nelbo, smallest_time(config))
    report = {
        "metrics": metrics,
        "likelihood": {name: dataclasses.asdict(one) for name, one in found.items()},
        **provenance(config, run.prepared, run.module, run.checkpoint, run.step),
    }
    if trainer.is_global_zero:
        target = Path(config.run_dir) / "ppl_eval.json"
        write_atomically(target, json.dumps(report, indent=2) + "\n")
        RunRecords(run, Path(config.run_dir) / RECORDS, config.seed, report["host"]).write(
            LIKELIHOOD,
            found,
            samples=errors.sequences,
            precision=likelihood_precision(str(config.trainer.precision)),
            more={"mode": "ppl_eval", "sequences": errors.sequences},
        )
        for name, value in sorted(metrics.items()):
            print(f"{name} {value:.6f}")
        print(f"written to {target}")
    return report


def _callbacks(trainer: L.Trainer) -> list[L.Callback]:
    return trainer.callbacks  # type: ignore[attr-defined]  # set by Lightning's connector


def smallest_time(config: DictConfig) -> float | None:
    """Where the average over times begins; None for an exact likelihood and for discrete steps."""
    if method_of(config) == "ar" or config.T > 0:
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
        "checkpoint_sha256": file_digest(checkpoint),
        "step": step,
        "seed": config.seed,
        "ema": module.ema is not None,
        "precision": str(config.trainer.precision),
        "model": config.model.name,
        "num_components": config.model.get("num_components", 1),
        "latent_blocks": config.model.get("latent_blocks"),
        "trunk": config.model.get("trunk"),
        "baseline": baseline_name(config),
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
    }


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    return checkpoint_digest(path)
