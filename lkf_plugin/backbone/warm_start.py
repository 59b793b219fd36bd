"""Starting a mixture from a factorised model: the same trunk, a new router, a new latent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError

PREFIXES = ("backbone.trunk.", "backbone.")


def trunk_weights(
    checkpoint: dict[str, Any], names: list[str], path: str | Path
) -> dict[str, Tensor]:
    """Trunk tensors by their name inside the trunk, from an M = 1 or an MDLM checkpoint.

    The moving average is taken where the checkpoint has one.
    """
    state = checkpoint["state_dict"]
    prefix = next((p for p in PREFIXES if p + names[0] in state), None)
    if prefix is None:
        raise UserError(
            f"{path} has no trunk like this model's: model.trunk and model.type must be those of "
            "the checkpoint."
        )
    embedding = state.get("backbone.latent_emb.weight")
    if embedding is not None and embedding.shape[0] != 1:
        raise UserError(
            f"{path} is a mixture of {embedding.shape[0]} components: init.from_checkpoint starts "
            "from a model with one, so name an M = 1 or an MDLM checkpoint."
        )
    missing = [n for n in names if prefix + n not in state]
    if missing:
        raise UserError(
            f"{path} lacks {missing[0]} of this model: take model.n_blocks and model.trunk of the "
            "checkpoint."
        )
    weights = {n: state[prefix + n] for n in names}
    ema = checkpoint.get("ema")
    if ema is not None:
        # the average is a list in parameter order; the trunk's parameters come first
        shadows = ema["shadow_params"][: len(names)]
        if len(shadows) < len(names):
            raise UserError(f"{path} is damaged: its weight average is not whole.")
        weights = dict(zip(names, shadows, strict=True))
    return weights


def start_from_factorised(backbone: LatentKernelBackbone, path: str | Path) -> None:
    """Copies the trunk of an M = 1 or MDLM checkpoint into ``backbone``.

    The router's last layer stays zero and the latent embedding N(0, 1), so every component starts
    near the loaded denoiser.

    Raises:
        UserError: no such file, another architecture or other shapes.
    """
    parameters = dict(backbone.trunk.named_parameters())
    weights = trunk_weights(read_checkpoint(path), list(parameters), path)
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise UserError(
                f"{name} has shape {tuple(weights[name].shape)} in {path} and "
                f"{tuple(parameter.shape)} in this model: give both the same model sizes, length "
                "and tokenizer."
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
