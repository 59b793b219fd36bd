"""An exported folder back as a checkpoint of ours."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lkf_plugin.data.tokenizer import load_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import check_weights
from lkf_plugin.exchange.foreign import PREFIX
from lkf_plugin.exchange.pickles import write_plain
from lkf_plugin.hub.export import OWN, RAW, WEIGHTS, file_digest
from lkf_plugin.hub.network import averaged_names, empty_network, own_names
from lkf_plugin.runs.identity import CARD, read_card
from lkf_plugin.runs.tokenizer import SUFFIX, keep_tokenizer

_WHOLE = (
    "vocab_size",
    "mask_index",
    "length",
    "hidden_size",
    "cond_dim",
    "n_blocks",
    "n_heads",
    "num_components",
    "latent_blocks",
)


def is_export(source: Path) -> bool:
    """Whether a folder is an export of ours."""
    try:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get(OWN), dict)


def import_export(source: Path, target: Path) -> list[str]:
    """Writes an exported folder's weights, average, card and tokenizer as a checkpoint.

    Where the weights are no longer those that were exported (somebody trained them on), they are
    taken as trained weights without an average.

    Returns:
        Overrides that describe the model on our command line, quoted for a shell.

    Raises:
        UserError: damaged files, or weights of another network than ``config.json`` describes.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    own = config[OWN]
    sizes = _checked_sizes(config, source)
    network = empty_network(sizes, sizes["vocab_size"], sizes["mask_index"])
    kind = sizes["network_type"]
    shown = own_names(_tensors(source / WEIGHTS), kind)
    average, raw = own.get("average"), source / RAW
    as_exported = file_digest(source / WEIGHTS) == own.get("weights_sha256")
    kept = isinstance(average, dict) and raw.is_file() and as_exported
    state = own_names(_tensors(raw), kind) if kept else shown
    for tensors in (state, shown):
        check_weights(network, tensors, source)
    converted: dict[str, Any] = {
        "state_dict": {PREFIX + name: tensor for name, tensor in state.items()},
        CARD: own.get("card"),
    }
    if read_card(converted, source) is None:
        raise UserError(f"{source}/config.json is damaged: it has no card.")
    if isinstance(own.get("step"), int):
        converted["global_step"] = own["step"]
    if kept:
        assert isinstance(average, dict)
        converted["ema"] = {
            "decay": float(average["decay"]),
            "num_updates": int(average["num_updates"]),
            "shadow_params": [shown[name] for name in averaged_names(network)],
        }
    write_plain(converted, target)
    if any((source / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        _keep_tokenizer(source, target)
    return _overrides(sizes, own, kept)


def _keep_tokenizer(source: Path, target: Path) -> None:
    """Puts the tokenizer beside the checkpoint; read apart from the model's ``config.json``."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in source.iterdir():
            if path.suffix in (".json", ".txt") and path.name != "config.json":
                shutil.copy(path, scratch)
        keep_tokenizer(load_tokenizer(scratch), target.with_suffix(SUFFIX))


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"there is no {path}")
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or no safetensors file ({error})") from error


def _checked_sizes(config: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """Sizes that are what they should be: they are built from and printed."""
    for key in _WHOLE:
        value = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UserError(f"{source}/config.json is damaged: it has {key}={value!r}")
    dropout, conditioned = config.get("dropout"), config.get("time_conditioning")
    if config.get("network_type") not in ("lkf", "ddit"):
        raise UserError(f"{source}/config.json is damaged: it has no network_type lkf or ddit")
    if config.get("trunk") not in ("matched", "native"):
        raise UserError(f"{source}/config.json is damaged: it has no trunk matched or native")
    if not isinstance(dropout, int | float) or not math.isfinite(dropout):
        raise UserError(f"{source}/config.json is damaged: it has dropout={dropout!r}")
    if not isinstance(conditioned, bool):
        raise UserError(
            f"{source}/config.json is damaged: it has time_conditioning={conditioned!r}"
        )
    keys = (*_WHOLE, "network_type", "trunk", "dropout", "time_conditioning")
    return {key: config[key] for key in keys}


def _overrides(sizes: Mapping[str, Any], own: Mapping[str, Any], averaged: bool) -> list[str]:
    mixture = sizes["network_type"] == "lkf"
    keys = ["hidden_size", "cond_dim", "n_blocks", "n_heads", "length", "dropout"]
    keys += ["trunk", "num_components", "latent_blocks"] if mixture else []
    settings = ["model=lkf", "loss=mixture"] if mixture else ["model=small", "loss=mdlm"]
    settings += [f"model.{key}={sizes[key]}" for key in keys]
    if not mixture and sizes["trunk"] == "native":
        settings += ["method=mdlm", "+model.trunk=native"]
    settings.append(f"time_conditioning={str(sizes['time_conditioning']).lower()}")
    settings += [f"T={own['T']}"] if isinstance(own.get("T"), int) else []
    settings += [] if averaged else ["training.ema=0"]
    return [shlex.quote(setting) for setting in settings]
