"""Public checkpoints into this plugin's layout; `export` writes the other way.

What comes out of an import holds tensors and plain numbers only: `state_dict` under `backbone.` and
`ema`, which host=builtin, host=mdlm, `eval.checkpoint_path` and `init.from_checkpoint` read alike.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from lkf_plugin import __version__
from lkf_plugin.backbone import MatchedTrunk
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.foreign import LATENT, METHODS, PREFIX, Foreign, read_foreign
from lkf_plugin.exchange.mask_row import row_order, take_rows
from lkf_plugin.exchange.pickles import write_plain
from lkf_plugin.methods.causal import CausalTransformer
from lkf_plugin.methods.di4c_network import add_latent
from lkf_plugin.methods.method import METHODS as KNOWN
from lkf_plugin.runs.identity import CARD, FORMAT, Card

ABSORBING = ("mdlm", "sdtt", "di4c")  # whose configurations tell how the network hears of time


@dataclass(frozen=True)
class Wanted:
    """What the user says of a checkpoint; None leaves it to the file.

    Attributes:
        method: one of `foreign.METHODS`.
        mask_index, vocab_size: of our tokenizer; given together they move the mask's row.
        source_mask: the checkpoint's mask id, where its layout does not tell.
        length: sequence length.
        tokenizer: what `runs.tokenizer.tokenizer_card` says of the tokenizer that the checkpoint is
            for.
    """

    method: str | None = None
    mask_index: int | None = None
    vocab_size: int | None = None
    source_mask: int | None = None
    length: int | None = None
    tokenizer: dict[str, Any] | None = None


def import_checkpoint(
    source: Path, target: Path, trust_pickle: bool, wanted: Wanted | None = None
) -> list[str]:
    """Converts `source` to `target`; a configuration is saved beside it with suffix .yaml.

    Returns:
        Overrides that describe the model on our command line, quoted for a shell.

    Raises:
        UserError: unreadable, another network, another vocabulary, or a mask row left open.
    """
    wanted = wanted or Wanted()
    foreign = read_foreign(source, trust_pickle)
    method = wanted.method or foreign.method
    if method not in METHODS:
        raise UserError(f"{source} does not say what it is: give --method, {', '.join(METHODS)}")
    network = network_of(foreign, method, source)
    _check_latent(foreign, method, source)
    check_weights(network, foreign.state, source)
    average = checked_average(network, foreign.average, source)
    order = _order(foreign, method, wanted, source)
    state = foreign.state
    if order is not None:
        state = {name: take_rows(name, tensor, order) for name, tensor in state.items()}
        if average is not None:
            named = zip(parameter_names(network), average["shadow_params"], strict=True)
            average["shadow_params"] = [take_rows(name, shadow, order) for name, shadow in named]
    converted = {**foreign.extra}
    converted["state_dict"] = {PREFIX + name: tensor for name, tensor in state.items()}
    if average is not None:
        converted["ema"] = average
    length = _checked_length(wanted.length or foreign.length, source)
    settings = overrides(foreign, network, method, length, average)
    converted[CARD] = imported_card(foreign, method, wanted, source)
    write_plain(converted, target)
    if foreign.config is not None:
        plain = OmegaConf.to_container(foreign.config)
        OmegaConf.save(OmegaConf.create(plain), target.with_suffix(".yaml"))
    return settings


def _check_latent(foreign: Foreign, method: str, source: Path) -> None:
    """Di4C's weights are its own method's, and no other's are."""
    if (method == "di4c") != any(name.startswith(LATENT) for name in foreign.state):
        has = "has no latent's weights" if method == "di4c" else "has a latent's weights"
        raise UserError(f"{source} {has}: it is not of method {method}")


def _causal(method: str) -> bool:
    return KNOWN[method].network == "causal"


def imported_card(foreign: Foreign, method: str, wanted: Wanted, source: Path) -> Card:
    """What an imported checkpoint says of itself: as much as its file tells."""
    sizes = sizes_of(foreign.state, source)
    keys = ("hidden_size", "n_blocks", "n_heads") + (() if _causal(method) else ("cond_dim",))
    network = {"type": "ddit", **{key: sizes[key] for key in keys}}
    process = dict(KNOWN[method].process)
    if method in ABSORBING and _has_process(foreign):
        process |= _process_of(foreign, source)
    elif method == "mdlm" and _tells_conditioning(foreign):
        assert foreign.config is not None
        process["time_conditioning"] = bool(foreign.config["time_conditioning"])
    card = {"name": method, **({"start": "data"} if _causal(method) else {})}
    tokenizer = wanted.tokenizer or {}
    return {
        "format": FORMAT,
        "method": card,
        "network": network,
        "process": process,
        "tokenizer": tokenizer,
        "version": __version__,
    }


def _has_process(foreign: Foreign) -> bool:
    config = foreign.config
    return config is not None and "parameterization" in config


def _tells_conditioning(foreign: Foreign) -> bool:
    """Whether a hub folder's ``config.json`` says if the network is told the time."""
    config = foreign.config
    return config is not None and isinstance(config.get("time_conditioning"), bool)


def _process_of(foreign: Foreign, source: Path) -> dict[str, Any]:
    """`time_conditioning` and `T` of an MDLM checkpoint.

    Raises:
        UserError: they are no such values; what is printed of a file is checked before.
    """
    assert foreign.config is not None
    conditioning, steps = foreign.config.get("time_conditioning"), foreign.config.get("T")
    if not isinstance(conditioning, bool):
        raise _no_value(source, "time_conditioning", conditioning)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise _no_value(source, "T", steps)
    return {"time_conditioning": conditioning, "T": steps}


def _checked_length(length: Any, source: Path) -> int | None:
    if length is None:
        return None
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise _no_value(source, "model.length", length)
    return length


def _no_value(source: Path, key: str, value: Any) -> UserError:
    return UserError(f"{source} is damaged: its configuration has {key}={value!r}")


def network_of(foreign: Foreign, method: str, source: Path) -> nn.Module:
    """The network that the weights' shapes describe, without storage."""
    sizes = sizes_of(foreign.state, source)
    with torch.device("meta"):
        if _causal(method):
            causal = {k: sizes[k] for k in ("hidden_size", "n_blocks", "n_heads")}
            return CausalTransformer(sizes["vocab_size"], dropout=0.0, **causal)
        trunk = MatchedTrunk(dropout=0.0, **sizes)
        return add_latent(trunk, sizes["hidden_size"]) if method == "di4c" else trunk


def sizes_of(state: dict[str, Tensor], source: Path) -> dict[str, Any]:
    """Sizes of the network from the shapes of its weights."""
    try:
        vocab_size, hidden_size = state["vocab_embed.embedding"].shape
        blocks = [int(name.split(".")[1]) for name in state if name.startswith("blocks.")]
        sigma = state.get("sigma_map.mlp.0.weight")
        return {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "n_blocks": max(blocks) + 1,
            "n_heads": hidden_size // (2 * state["rotary_emb.inv_freq"].shape[0]),
            "cond_dim": 128 if sigma is None else sigma.shape[0],
        }
    except (KeyError, ValueError) as error:
        raise UserError(f"{source} is no network of MDLM's kind: it lacks {error}") from error


def check_weights(network: nn.Module, state: dict[str, Tensor], source: Path) -> None:
    """Raise a UserError unless names and shapes of `state` are the network's."""
    wanted = {name: tensor.shape for name, tensor in network.state_dict().items()}
    missing, unknown = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    if missing or unknown:
        name = (missing or unknown)[0]
        raise UserError(
            f"{source} is not of the method's network: it "
            f"{'lacks' if missing else 'has an unknown'} {PREFIX}{name}"
        )
    for name, shape in wanted.items():
        _require_shape(PREFIX + name, state[name], shape, source)


def checked_average(
    network: nn.Module, average: dict[str, Any] | None, source: Path
) -> dict[str, Any] | None:
    """The weight average, whose shadows lie in the order of the network's parameters."""
    if average is None:
        return None
    named = list(network.named_parameters())
    shadows = list(average["shadow_params"])
    if len(shadows) != len(named):
        raise UserError(
            f"{source} averages {len(shadows)} weights, but its network has {len(named)}"
        )
    for (name, parameter), shadow in zip(named, shadows, strict=True):
        _require_shape(f"the average of {PREFIX}{name}", shadow, parameter.shape, source)
    return {
        "decay": float(average["decay"]),
        "num_updates": int(average["num_updates"] or 0),
        "shadow_params": [shadow.detach().clone() for shadow in shadows],
    }


def _require_shape(name: str, tensor: Tensor, shape: torch.Size, source: Path) -> None:
    if tensor.shape != shape:
        raise UserError(
            f"in {source}, {name} has shape {tuple(tensor.shape)}, and {tuple(shape)} by its "
            "other weights"
        )


def parameter_names(network: nn.Module) -> list[str]:
    """Names in the order of an average's shadows."""
    return [name for name, _ in network.named_parameters()]


def _order(foreign: Foreign, method: str, wanted: Wanted, source: Path) -> list[int] | None:
    """How rows move, or None where they stay."""
    rows = foreign.state["vocab_embed.embedding"].shape[0]
    size = wanted.vocab_size
    if wanted.mask_index is None:
        if size is not None and size != rows:
            raise UserError(f"{source} has {rows} rows, not {size}: give --mask-index, too")
        return None
    size = rows if size is None else size
    if KNOWN[method].process.get("diffusion") == "uniform_state":
        if size != rows:
            raise UserError(f"{source} has {rows} rows, not {size}: DUO has no mask to move")
        return None
    mask = wanted.source_mask if wanted.source_mask is not None else foreign.mask_index
    if mask is None:
        raise UserError(f"{source} does not say which row is its mask's: give --source-mask")
    return row_order(rows, mask, size, wanted.mask_index)


def overrides(
    foreign: Foreign,
    network: nn.Module,
    method: str,
    length: int | None,
    average: dict[str, Any] | None,
) -> list[str]:
    """Overrides of `model=small` that give the checkpoint's network on our command line."""
    sizes = sizes_of(foreign.state, Path())
    keys = ["hidden_size", "n_blocks", "n_heads"] + ([] if _causal(method) else ["cond_dim"])
    settings = ["model=small", *(f"model.{key}={sizes[key]}" for key in keys)]
    settings += [f"method={method}"] if method != "mdlm" else []
    settings += [f"model.length={length}"] if length else []
    settings += ["method.start=data"] if _causal(method) else []
    if _has_process(foreign):
        assert foreign.config is not None
        dropout = foreign.config.model.get("dropout")
        exported = dropout is None and foreign.config.get("mask_index") is not None  # ours
        if not exported:
            if not isinstance(dropout, int | float) or not math.isfinite(dropout):
                raise _no_value(Path("the checkpoint"), "model.dropout", dropout)
            settings.append(f"model.dropout={dropout}")
        if method in ABSORBING:
            process = _process_of(foreign, Path("the checkpoint"))
            conditioning = str(process["time_conditioning"]).lower()
            settings += [f"time_conditioning={conditioning}", f"T={process['T']}"]
    settings += ["training.ema=0"] if average is None else []
    return [shlex.quote(setting) for setting in settings]
