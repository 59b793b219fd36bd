"""Tiny models that many tests share."""

from __future__ import annotations

from typing import Any

import torch

from lkf_plugin.backbone import LatentKernelBackbone, build_backbone

MODEL: dict[str, Any] = {
    "type": "lkf",
    "trunk": "matched",
    "hidden_size": 16,
    "cond_dim": 8,
    "n_blocks": 2,
    "n_heads": 2,
    "length": 8,
    "dropout": 0.0,
    "num_components": 3,
    "latent_blocks": 1,
    "latent_emb_std": 1.0,
    "latent_film_std": 0.02,
}

# overrides of main.py for a mixture that the tests of the modes train in a few steps
LKF_OVERRIDES = (
    "model=lkf-tiny",
    "loss=mixture",
    "model.num_components=2",
    "model.latent_blocks=1",
    "decode.score_draws=1",
)


def tiny_backbone(
    vocab_size: int = 7, mask_index: int = 2, scramble: float = 0.3, seed: int = 0, **changes: Any
) -> LatentKernelBackbone:
    """A float64 backbone in eval mode whose every parameter is random, zero starts included."""
    torch.manual_seed(seed)
    model = build_backbone({**MODEL, **changes}, vocab_size, mask_index).double().eval()
    assert isinstance(model, LatentKernelBackbone)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scramble * torch.randn(parameter.shape, dtype=torch.float64))
    return model
