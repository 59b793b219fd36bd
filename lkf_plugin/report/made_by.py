"""The command that made a number: of a training, a likelihood, samples."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lkf_plugin.config.folder import config_folder
from lkf_plugin.runs.command_line import NOT_SAID, command_line_of, word
from lkf_plugin.runs.settings import load_settings

# What an evaluation notes of itself, and the setting of it.
EVALUATED = {
    "seed": "seed",
    "precision": "trainer.precision",
    "eval_batch_size": "loader.eval_batch_size",
    "limit_val_batches": "trainer.limit_val_batches",
    "sampling_eps": "training.sampling_eps",
    "antithetic_sampling": "training.antithetic_sampling",
    "importance_sampling": "training.importance_sampling",
    "change_of_variables": "training.change_of_variables",
    "T": "T",
}
SAMPLED = {
    "sampling_steps": "sampling.steps",
    "predictor": "sampling.predictor",
    "eps": "sampling.eps",
    "noise_removal": "sampling.noise_removal",
    "prompt": "sampling.prompt",
}


def training_command(folder: Path) -> str:
    """``lkf train`` with the settings of a run, in its folder."""
    settings = load_settings(folder)
    assert settings is not None
    words = command_line_of(settings)
    places = [f"run_dir={word(str(folder))}"]
    command = " ".join(["lkf train", *(shlex.quote(one) for one in (*words.overrides, *places))])
    return command if words.exact else f"{command}  # some settings are of another version"


def likelihood_command(folder: Path, settings: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """``lkf eval`` for a likelihood evaluation.

    Args:
        folder: the run folder.
        settings: of the run, by dotted key.
        one: what the evaluation wrote.
    """
    words = _differing(EVALUATED, settings, one) + _weights(folder, one)
    if one.get("few_steps"):
        words.append(f"eval.steps={word(one['few_steps'])}")
    if one.get("few_steps_replay"):
        words.append(f"eval.replay={word(one['few_steps_replay'])}")
    return _said("eval", folder, words)


def samples_command(folder: Path, settings: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """``lkf sample`` for a sample evaluation; arguments as in ``likelihood_command``."""
    decode = dict(one.get("decode") or {})
    name = str(decode.get("policy", "auto"))
    path = config_folder() / "decode" / f"{name}.yaml"
    known = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    words = [f"decode={name}"] if known else [f"decode.policy={name}"]
    words += [
        f"{'' if key in known else '+'}decode.{key}={word(value)}"
        for key, value in decode.items()
        if key != "policy" and (key not in known or known[key] != value)
    ]
    batch = one.get("eval_batch_size")
    if batch:
        words.append(f"sampling.num_sample_batches={one['num_samples'] // batch}")
    words += _differing(EVALUATED | SAMPLED, settings, one) + _weights(folder, one)
    return _said("sample", folder, words)


def _differing(
    names: Mapping[str, str], settings: Mapping[str, Any], one: Mapping[str, Any]
) -> list[str]:
    """Settings in which an evaluation differs from its run."""
    return [
        f"{key}={word(one[name])}"
        for name, key in names.items()
        if name in one and settings.get(key) != one[name] and key not in NOT_SAID
    ]


def _weights(folder: Path, one: Mapping[str, Any]) -> list[str]:
    """Which checkpoint, and whether its average, where it is not the usual one."""
    words = [] if one.get("ema", True) else ["eval.disable_ema=true"]
    usual = ["best.ckpt"] if (folder / "checkpoints" / "best.ckpt").is_file() else ["last.ckpt"]
    path = Path(str(one.get("checkpoint", "")))
    if one.get("checkpoint") and path.name not in usual:
        words.append(f"eval.checkpoint_path={word(str(path))}")
    return words


def _said(command: str, folder: Path, overrides: list[str]) -> str:
    return " ".join([f"lkf {command} {shlex.quote(str(folder))}", *map(shlex.quote, overrides)])
