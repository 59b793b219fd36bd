"""Brings a checkpoint of MDLM's own trainer into this plugin's layout.

MDLM pickles its configuration and tokenizer into each checkpoint, so torch's `weights_only` loading
refuses it. What comes out here holds tensors and plain numbers only: `state_dict` and `ema` under
the names that they had, which host=mdlm, host=builtin and `init.from_checkpoint` read alike. The
configuration goes beside it, as YAML.
"""

from __future__ import annotations

import collections.abc
import os
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lkf_plugin.backbone import MatchedTrunk, build_backbone
from lkf_plugin.errors import UserError

PREFIX = "backbone."
KEPT = ("epoch", "global_step", "pytorch-lightning_version", "loops")


def import_checkpoint(source: Path, target: Path, trust_pickle: bool) -> list[str]:
    """Convert `source` to `target`, and write its configuration to `target` with suffix .yaml.

    Args:
        source: a checkpoint that MDLM's trainer wrote (backbone=dit, parameterization=subs).
        target: the checkpoint to write.
        trust_pickle: the user's word that `source` comes from a trusted place.

    Returns:
        Overrides that describe the model on our command line.

    Raises:
        UserError: no such file, no permission to unpickle, or not such a checkpoint.
    """
    checkpoint = read_pickled(source, trust_pickle)
    hyper_parameters = checkpoint.get("hyper_parameters")
    config = hyper_parameters.get("config") if isinstance(hyper_parameters, dict) else None
    if "state_dict" not in checkpoint or not isinstance(config, DictConfig):
        raise UserError(f"{source} is no checkpoint of MDLM's trainer: it holds no configuration")
    for key, wanted in (("backbone", "dit"), ("parameterization", "subs")):
        if config[key] != wanted:
            raise UserError(f"{source} has {key}={config[key]}: only {key}={wanted} is supported")

    state = {name: tensor.clone() for name, tensor in checkpoint["state_dict"].items()}
    network = network_of(config, state, source)
    check_weights(network, state, source)
    converted = {key: checkpoint[key] for key in KEPT if key in checkpoint}
    converted["state_dict"] = state
    if "ema" in checkpoint:
        converted["ema"] = checked_ema(network, checkpoint["ema"], source)
    _write(converted, target)
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(config)), target.with_suffix(".yaml"))
    return overrides(config)


def read_pickled(source: Path, trust_pickle: bool) -> dict[str, Any]:
    """Read a checkpoint with pickled objects, on the CPU.

    Objects of classes other than torch's, OmegaConf's and Python's own containers come out empty:
    neither MDLM's modules nor the transformers version of that time are needed. This is no
    protection against a file that was made to do harm.
    """
    if not trust_pickle:
        raise UserError(
            "MDLM's checkpoints are pickle files, which can run any code when they are read: "
            "add --trust-pickle if you trust where this one comes from"
        )
    if not source.is_file():
        raise UserError(f"there is no checkpoint {source}")
    reader = ModuleType("lkf_tolerant_pickle")
    vars(reader).update(vars(pickle), Unpickler=_TolerantUnpickler)
    try:
        return torch.load(source, map_location="cpu", weights_only=False, pickle_module=reader)
    except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError) as error:
        raise UserError(f"{source} is damaged or no checkpoint ({error})") from error


class _Empty:
    """Takes the place of an object that is not needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> _Empty:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass


class _TolerantUnpickler(pickle.Unpickler):
    """Finds the classes that weights and a configuration consist of; all others are `_Empty`."""

    packages = ("torch", "omegaconf", "collections", "typing", "copyreg", "_codecs")
    builtins = {t.__name__ for t in (bool, bytearray, bytes, complex, dict, float, frozenset)}
    builtins |= {t.__name__ for t in (int, list, object, set, slice, str, tuple)}

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in self.packages or (
            module == "builtins" and name in self.builtins
        ):
            return super().find_class(module, name)
        return type(name, (_Empty,), {})


def network_of(config: DictConfig, state: dict[str, Tensor], source: Path) -> MatchedTrunk:
    """The network that the checkpoint's configuration describes, without storage."""
    table = state.get(PREFIX + "vocab_embed.embedding")
    if table is None:
        raise UserError(f"{source} holds no token embedding of MDLM's transformer")
    model = {**OmegaConf.to_container(config.model), "type": "ddit"}  # type: ignore[dict-item]
    with torch.device("meta"):
        network = build_backbone(model, table.shape[0], table.shape[0] - 1)
    assert isinstance(network, MatchedTrunk)
    return network


def check_weights(network: MatchedTrunk, state: dict[str, Tensor], source: Path) -> None:
    """Raise a UserError unless names and shapes of `state` are the network's."""
    wanted = {PREFIX + name: tensor.shape for name, tensor in network.state_dict().items()}
    missing, unknown = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    if missing or unknown:
        name = (missing or unknown)[0]
        raise UserError(
            f"{source} does not fit its own configuration: it "
            f"{'lacks' if missing else 'has an unknown'} {name}"
        )
    for name, shape in wanted.items():
        _require_shape(name, state[name], shape, source)


def checked_ema(network: MatchedTrunk, ema: dict[str, Any], source: Path) -> dict[str, Any]:
    """The weight average, whose shadows lie in the order of the network's parameters."""
    named = list(network.named_parameters())
    shadows = list(ema["shadow_params"])
    if len(shadows) != len(named):
        raise UserError(
            f"{source} averages {len(shadows)} weights, but its network has {len(named)}"
        )
    for (name, parameter), shadow in zip(named, shadows, strict=True):
        _require_shape(f"the average of {PREFIX}{name}", shadow, parameter.shape, source)
    return {
        "decay": float(ema["decay"]),
        "num_updates": int(ema["num_updates"]),
        "shadow_params": [shadow.detach().clone() for shadow in shadows],
    }


def _require_shape(name: str, tensor: Tensor, shape: torch.Size, source: Path) -> None:
    if tensor.shape != shape:
        raise UserError(
            f"in {source}, {name} has shape {tuple(tensor.shape)}, and {tuple(shape)} by the "
            "configuration beside it"
        )


def overrides(config: DictConfig) -> list[str]:
    """Overrides of `model=small` that give the checkpoint's network on our command line."""
    keys = ("hidden_size", "cond_dim", "length", "n_blocks", "n_heads", "dropout")
    settings = ["model=small", *(f"model.{key}={config.model[key]}" for key in keys)]
    settings += [f"time_conditioning={str(config.time_conditioning).lower()}", f"T={config.T}"]
    return settings


def _write(converted: dict[str, Any], target: Path) -> None:
    """Write the checkpoint whole, and only if torch's safe loading takes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        torch.save(_plain(converted), scratch)
        torch.load(scratch, map_location="cpu", weights_only=True, mmap=True)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """`value` with mappings and sequences as plain dicts and lists; other objects become None."""
    if isinstance(value, collections.abc.Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, Tensor | str | int | float | bool | None) else None
