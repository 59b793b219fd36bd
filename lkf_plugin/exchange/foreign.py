"""The public checkpoint layouts of MDLM, SEDD, DUO and their students, read into one form.

* Lightning `.ckpt` (MDLM, DUO, ReDi): names under `backbone.`, `ema`, a pickled configuration
* Lightning `.ckpt` of SDTT and Di4C: the same with other words in the configuration; the mask is
  appended, and Di4C has a latent's weights more
* SEDD `.pth`: `model`, `ema` with a list in the order of the parameters, `step`
* Hugging Face `.safetensors`, or a folder with one (or with an older `pytorch_model.bin`): names
  alone or under `backbone.`, no average, a `config.json` beside it
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.exchange.pickles import read_pickled

PREFIX, COMPILED = "backbone.", "_orig_mod."
METHODS = ("mdlm", "sedd", "duo", "ar", "sdtt", "di4c", "dcd", "redi")
OF_ALGO = {"distillation": "dcd", "rectification": "redi"}  # beside names that begin as ours
OF_SDTT = "multi-round-sdtt"  # SDTT's and Di4C's name for their parameterization
LATENT = "latent_projection."
OF_PARAMETERIZATION = {"subs": "mdlm", "sedd": "sedd", "ar": "ar", "mean": "duo"}
KEPT = ("epoch", "global_step", "pytorch-lightning_version", "loops")


@dataclass
class Foreign:
    """A checkpoint of another trainer.

    Attributes:
        state: weights by their names in the network.
        average: `decay`, `num_updates` and `shadow_params`, or None.
        method: one of `METHODS`; None where the layout does not tell.
        mask_index: its mask, where the layout says so.
        length: sequence length, where known.
        extra: entries of a Lightning checkpoint that are kept.
        config: the configuration beside it, where there is one.
    """

    state: dict[str, Tensor]
    average: dict[str, Any] | None = None
    method: str | None = None
    mask_index: int | None = None
    length: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    config: DictConfig | None = None


def read_foreign(source: Path, trust_pickle: bool) -> Foreign:
    """Reads any of the layouts.

    Raises:
        UserError: no such file, no permission to unpickle, or none of the layouts.
    """
    if source.is_dir() or source.suffix == ".safetensors":
        return _read_safetensors(source)
    content = read_pickled(source, trust_pickle)
    if not isinstance(content, dict):
        raise UserError(f"{source} is no checkpoint: it holds no dictionary")
    if "model" in content and isinstance(content["model"], dict):
        state = _bare(content["model"], source)
        foreign = Foreign(state, content.get("ema"), "sedd")
        foreign.mask_index = _vocabulary(state, source) - 1  # SEDD appends its mask
        foreign.extra = {"global_step": int(content.get("step", 0))}
        return foreign
    if "state_dict" not in content:
        raise UserError(
            f"{source} is none of the layouts that can be imported: MDLM's or DUO's Lightning "
            "checkpoints, SEDD's .pth, or safetensors"
        )
    return _read_lightning(content, source)


def _read_lightning(content: dict[str, Any], source: Path) -> Foreign:
    hyper_parameters = content.get("hyper_parameters")
    config = hyper_parameters.get("config") if isinstance(hyper_parameters, dict) else None
    if not isinstance(config, DictConfig):
        raise UserError(
            f"{source} is no checkpoint of MDLM's or DUO's trainer: it holds no configuration"
        )
    algo = config.get("algo")
    if not isinstance(config.get("model"), DictConfig):
        raise UserError(f"{source} holds a configuration without a model")
    if _is_sdtt(config):
        foreign = Foreign(_bare(content["state_dict"], source), content.get("ema"), config=config)
        foreign.extra = {key: content[key] for key in KEPT if key in content}
        return _of_sdtt(foreign, source)
    backbone = config.get("backbone") or (algo and algo.get("backbone"))
    if backbone not in ("dit", "ar"):
        raise UserError(f"{source} has backbone={backbone}: only dit and ar are supported")
    if algo:
        name = str(algo.get("name"))
        method = OF_ALGO.get(name) or next((m for m in METHODS if name.startswith(m)), None)
        if method is None:
            raise UserError(
                f"{source} has algo.name={name}: take mdlm, sedd, duo, ar, distillation or "
                "rectification"
            )
    else:
        parameterization = config.get("parameterization")
        if parameterization not in OF_PARAMETERIZATION:
            raise UserError(
                f"{source} has parameterization={parameterization}: only subs, sedd and ar are "
                "supported"
            )
        method = OF_PARAMETERIZATION[parameterization]
    state = _bare(content["state_dict"], source)
    extra = {key: content[key] for key in KEPT if key in content}
    length = config.model.get("length")
    return Foreign(state, content.get("ema"), method, None, length, extra, config)


def _is_sdtt(config: DictConfig) -> bool:
    """Whether SDTT's code, or Di4C's on top of it, wrote this configuration."""
    parameterization = config.get("parameterization")
    return isinstance(parameterization, DictConfig) and parameterization.get("name") == OF_SDTT


def _of_sdtt(foreign: Foreign, source: Path) -> Foreign:
    """A student of SDTT, or of Di4C where there is a latent; both append their mask.

    Di4C's average is left out: its code begins it anew from weights that it then replaces, and
    evaluates the trained ones.
    """
    assert foreign.config is not None
    with_latent = any(name.startswith(LATENT) for name in foreign.state)
    foreign.method = "di4c" if with_latent else "sdtt"
    foreign.average = None if with_latent else foreign.average
    foreign.mask_index = _vocabulary(foreign.state, source) - 1
    model = foreign.config.get("model")
    foreign.length = model.get("length") if isinstance(model, DictConfig) else None
    return foreign


def _read_safetensors(source: Path) -> Foreign:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = source / "model.safetensors" if source.is_dir() else source
    older = source / "pytorch_model.bin"
    if source.is_dir() and not file.is_file() and older.is_file():
        state = _bare(_tensors_of(older), source)
    elif not file.is_file():
        raise UserError(f"there is no {file}{_in_parts(source)}")
    else:
        try:
            state = _bare(load_file(file), source)
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or no safetensors file ({error})") from error
    foreign = Foreign(state)
    beside = file.with_name("config.json")
    if beside.is_file():
        try:
            config = json.loads(beside.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{beside} is damaged ({error})") from error
        if not isinstance(config, dict):
            raise UserError(f"{beside} is damaged: it holds no object")
        kind = str(config.get("model_type", "")).lower()
        foreign.method = next((m for m in METHODS if m in kind), None)
        nested = config.get("model")
        model: dict[str, Any] = nested if isinstance(nested, dict) else {}
        foreign.length = config.get("model_length") or config.get("length") or model.get("length")
        foreign.mask_index = config.get("mask_index")
        if "graph" in config:  # SEDD's own, which appends its mask
            foreign.method, foreign.mask_index = "sedd", _vocabulary(state, source) - 1
        foreign.config = OmegaConf.create(config)
        if _is_sdtt(foreign.config):
            return _of_sdtt(foreign, source)
    return foreign


def _tensors_of(file: Path) -> dict[str, Tensor]:
    """Of a ``pytorch_model.bin``, which is a pickle file: tensors alone are read."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything from EOFError to struct.error
        raise UserError(f"{file} is damaged or holds more than tensors") from error
    named = isinstance(content, dict) and all(isinstance(one, Tensor) for one in content.values())
    if not named:
        raise UserError(f"{file} holds no weights by name")
    return dict(content)


def _in_parts(source: Path) -> str:
    if source.is_dir() and any(source.glob("*.index.json")):
        return ": its weights lie in parts; save them as one file (save_pretrained)"
    return ""


def _bare(state: dict[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Copies under the network's own names: `backbone.` (of a wrapper, or two) is taken off."""
    bare_state = {}
    for name, tensor in state.items():
        bare = name.removeprefix("module.")
        while bare.startswith((PREFIX, COMPILED)):
            bare = bare.removeprefix(PREFIX).removeprefix(COMPILED)
        bare_state[bare] = tensor.detach().clone()
    _vocabulary(bare_state, source)
    return bare_state


def _vocabulary(state: dict[str, Tensor], source: Path) -> int:
    table = state.get("vocab_embed.embedding")
    if table is None:
        raise UserError(f"{source} holds no token embedding of MDLM's transformer")
    return table.shape[0]
