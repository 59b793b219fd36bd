"""What a run's numbers depend on, as the ``subject`` and ``settings`` of its records.

Groups of the configuration go in whole. `WITHOUT_EFFECT` lists every key that is left out, with
the reason; a test changes each key of these groups and asks for another digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.decode.registry import read_options
from lkf_plugin.decode.sample import BLOCK
from lkf_plugin.judge.judge import Judge
from lkf_plugin.methods.method import method_name
from lkf_plugin.runs.identity import ONE_LATENT, USUAL_PLACES

# group -> key -> why no number depends on it, or where else it enters
WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "decode": {},
    "sampling": {
        "num_sample_batches": "enters as the number of samples",
        "num_sample_log": "how many samples are shown",
    },
    "eval": {
        "checkpoint_path": "enters as the checkpoint's digest",
        "disable_ema": "enters as ema",
        "generate_samples": "training's validations only",
        "compute_perplexity_on_sanity": "training's validations only",
        "compute_generative_perplexity": "enters as the judge, or none",
        "gen_ppl_eval_model_name_or_path": "enters as the judge's label and revision",
        "steps": "enters as validation.steps",
        "replay": "enters as validation.replay",
        "perplexity_batch_size": "enters as the judge's batch size",
    },
    "training": {"ema": "made the weights, whose digest enters; whether they are used is ema"},
    "model": {
        "name": "a label",
        "activation_checkpointing": "a backward pass only",
    },
    "noise": {},
    "method": {"teacher": "made the weights, whose digest enters; a place says nothing"},
}
_UNSAID = {**ONE_LATENT, **USUAL_PLACES, "sticky": 3.0}
# keys of the process that stand at the configuration's top
PROCESS = ("parameterization", "diffusion", "time_conditioning", "subs_masking", "T")


def group(config: DictConfig, name: str) -> dict[str, Any]:
    """A group of the configuration without the keys that have no effect."""
    values = OmegaConf.to_container(config[name], resolve=True) if config.get(name) else {}
    assert isinstance(values, dict)
    kept = {str(k): v for k, v in values.items() if k not in WITHOUT_EFFECT[name]}
    if name == "model":  # what goes without saying is left out, as before there was a choice
        kept = {k: v for k, v in kept.items() if k not in _UNSAID or v != _UNSAID[k]}
    return kept


def subject_of(
    config: DictConfig, host: str, checkpoint: str, corpus: str, tokenizer: str
) -> dict[str, Any]:
    """What was measured: a network with its process, and the data it is measured on.

    Args:
        config: of the run.
        host: ``builtin`` or ``mdlm``.
        checkpoint, corpus, tokenizer: digests.
    """
    return {
        "host": host,
        "method": method_name(config),
        "checkpoint": checkpoint,
        "corpus": corpus,
        "tokenizer": tokenizer,
        "model": group(config, "model"),
        "process": {
            **{key: config.get(key) for key in PROCESS},
            "noise": group(config, "noise"),
            "method": group(config, "method"),
        },
    }


def judge_of(judge: Judge | None, batch_size: int | None = None) -> dict[str, Any]:
    """The judge as a setting; nulls where there is none."""
    if judge is None:
        return dict.fromkeys(("label", "revision", "dtype", "batch_size"))
    return {
        "label": judge.label,
        "revision": judge.revision,
        "dtype": str(judge.dtype).removeprefix("torch."),
        "batch_size": batch_size,
    }


def precision_of(network: str, draws: str | None = None) -> dict[str, str]:
    """Floating types of the network and of the token draws; a likelihood draws no token."""
    return {"network": network} if draws is None else {"network": network, "draws": draws}


def decode_of(settings: Mapping[str, Any], policy: str, own: bool = False) -> dict[str, Any]:
    """All decoding settings, the policy's name resolved.

    Samples of a host's or method's ``own`` sampler are drawn in blocks, and depend on their size.
    """
    options = read_options(settings).model_dump()
    options["policy"] = policy
    return {**options, "block": BLOCK} if own else options


def sampling_of(config: DictConfig, steps: int | None) -> dict[str, Any]:
    """The sampling group at J steps; None where steps mean nothing to the method."""
    return {**group(config, "sampling"), "steps": steps}


def beside_of(
    config: DictConfig,
    self_bleu: int,
    attribution: str | None = None,
    judged_chains: int | None = None,
    mauve: str | None = None,
) -> dict[str, Any]:
    """What is measured of samples beside the figure: the eval group, and the evaluator's options.

    Args:
        config: of the run.
        self_bleu: texts that enter self-BLEU.
        attribution: ``components`` or ``one_fewer``.
        judged_chains: chains per component that the judge hears alone.
        mauve: the featurizer.
    """
    return {
        **group(config, "eval"),
        "self_bleu": self_bleu,
        "attribution": attribution,
        "judged_chains": judged_chains,
        "mauve": mauve,
    }


def short_tokenizer_name(config: DictConfig) -> str:
    """Name of the tokenizer without its place."""
    return Path(str(config.data.tokenizer_name_or_path)).name
