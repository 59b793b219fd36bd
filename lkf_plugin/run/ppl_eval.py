"""mode=ppl_eval on the built-in host: likelihood of the held-out data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lkf_plugin.baselines.settings import baseline_name
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.run.common import build_module, build_trainer, find_checkpoint, load_weights
from lkf_plugin.run.settings import run_record, write_atomically
from lkf_plugin.train.datamodule import TokenBatches


def ppl_eval(config: DictConfig) -> dict[str, Any]:
    """Validates a checkpoint and writes ``ppl_eval.json`` into the run folder.

    Returns:
        What was written.
    """
    prepared = prepare(config, splits=("valid",))
    path = find_checkpoint(config)
    module = build_module(config, prepared.tokenizer)
    loaded = load_weights(module, path)
    if config.eval.disable_ema:
        module.ema = None
    trainer = build_trainer(config, logger=False, callbacks=[])
    trainer.validate(module, datamodule=TokenBatches(prepared, config), verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    report = {"metrics": metrics, **provenance(config, prepared, module, path, loaded["step"])}
    if trainer.is_global_zero:
        target = Path(config.run_dir) / "ppl_eval.json"
        write_atomically(target, json.dumps(report, indent=2) + "\n")
        for name, value in sorted(metrics.items()):
            print(f"{name} {value:.6f}")
        print(f"written to {target}")
    return report


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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
