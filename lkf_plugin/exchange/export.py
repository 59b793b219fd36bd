"""Checkpoints of this plugin in public layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import (
    check_weights,
    checked_average,
    network_of,
    parameter_names,
    sizes_of,
)
from lkf_plugin.exchange.foreign import LATENT, OF_SDTT, PREFIX, Foreign
from lkf_plugin.exchange.mask_row import row_order, take_rows
from lkf_plugin.exchange.pickles import write_plain
from lkf_plugin.runs.identity import CARD, Card

LAYOUTS = ("sedd", "sdtt", "huggingface")


def export_checkpoint(source: Path, target: Path, layout: str) -> None:
    """Writes a checkpoint of this plugin in a public layout.

    `sedd` is SEDD's .pth with its average; `huggingface` a folder with the averaged weights as
    safetensors; `sdtt` that of SDTT's and Di4C's students, whose mask is the last row. MDLM, DUO
    and ReDi read this plugin's own layout.

    Raises:
        UserError: unknown layout, or not a plain transformer.
    """
    checkpoint = read_checkpoint(source)
    state = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in checkpoint["state_dict"].items()
        if name.startswith(PREFIX)
    }
    if "vocab_embed.embedding" not in state:
        raise UserError(
            f"{source} is not MDLM's transformer (a latent-kernel or native one?): only that has "
            "public layouts"
        )
    foreign = Foreign(state)
    method = "ar" if "sigma_map.mlp.0.weight" not in state else "mdlm"
    method = "di4c" if any(name.startswith(LATENT) for name in state) else method
    network = network_of(foreign, method, source)
    check_weights(network, state, source)
    average = checked_average(network, checkpoint.get("ema"), source)
    if layout == "sedd":
        step = int(checkpoint.get("global_step", 0))
        write_plain({"model": state, "ema": average, "step": step}, target)
    elif layout == "huggingface":
        _write_folder(state, network, average, sizes_of(state, target), target)
    elif layout == "sdtt":
        _write_sdtt(state, network, average, checkpoint.get(CARD) or {}, source, target)
    else:
        raise UserError(f"layout {layout} is unknown: take {' or '.join(LAYOUTS)}")


def _write_sdtt(
    state: dict[str, Tensor],
    network: nn.Module,
    average: dict[str, Any] | None,
    card: Card,
    source: Path,
    target: Path,
) -> None:
    """The mask's row goes last, where SDTT and Di4C append theirs; Di4C evaluates raw weights."""
    mask, process = card.get("tokenizer", {}).get("mask"), card.get("process", {})
    if mask is None:
        raise UserError(
            f"{source} does not say which row is its mask's: import it with --tokenizer."
        )
    if not any(name.startswith(LATENT) for name in state):
        state = averaged(state, network, average)
    rows = state["vocab_embed.embedding"].shape[0]
    order = row_order(rows, mask, rows, rows - 1)
    state = {name: take_rows(name, tensor, order) for name, tensor in state.items()}
    sizes = sizes_of(state, source)
    model = {"type": "ddit-orig", **{key: sizes[key] for key in sizes if key != "vocab_size"}}
    described = {
        "model": model,
        "parameterization": {"name": OF_SDTT},
        "time_conditioning": bool(process.get("time_conditioning", False)),
        "T": int(process.get("T", 0)),
        "vocab_size": rows,
        "mask_index": rows - 1,
    }
    _write_folder(state, network, None, described, target)


def averaged(
    state: dict[str, Tensor], network: nn.Module, average: dict[str, Any] | None
) -> dict[str, Tensor]:
    """The weights with the average in their place, where there is one."""
    if average is None:
        return state
    names = parameter_names(network)
    return {**state, **dict(zip(names, average["shadow_params"], strict=True))}


def _write_folder(
    state: dict[str, Tensor],
    network: nn.Module,
    average: dict[str, Any] | None,
    described: dict[str, Any],
    target: Path,
) -> None:
    from safetensors.torch import save_file

    state = averaged(state, network, average)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {PREFIX + name: tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, target / "model.safetensors")
    text = json.dumps(described, indent=2)
    (target / "config.json").write_text(text + "\n", encoding="utf-8")
