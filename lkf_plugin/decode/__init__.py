"""Decoding: one rollout engine, scores of finished candidates, and small policies over them.

Two samples of four steps from a network that nobody trained:

>>> import torch
>>> from lkf_plugin.backbone import build_backbone
>>> from lkf_plugin.corruption import LogLinearNoise
>>> from lkf_plugin.decode import POLICIES, DecodeNetwork, DecodeRequest, RolloutEngine
>>> model = dict(type="lkf", trunk="native", length=6, hidden_size=16, cond_dim=8, n_blocks=1,
...              n_heads=2, dropout=0.0, num_components=3, latent_blocks=1, latent_emb_std=1.0,
...              latent_film_std=0.02)
>>> backbone = build_backbone(model, vocab_size=5, mask_index=4).eval()
>>> network = DecodeNetwork(backbone, LogLinearNoise(), process_sigma=torch.zeros_like)
>>> request = DecodeRequest(
...     RolloutEngine(network, num_steps=4),
...     x_GL=torch.full((2, 6), 4),  # all masks
...     seed_G=torch.tensor([0, 1]),
... )
>>> decoded = POLICIES["best_of_m"](request, {"policy": "best_of_m", "score_draws": 2})
>>> tuple(decoded.x_GL.shape), bool((decoded.x_GL == 4).any())
((2, 6), False)
>>> decoded.steps_calls  # M chains of J steps, each scored with T draws
18.0
"""

from __future__ import annotations

from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import POLICIES

__all__ = [
    "POLICIES",
    "DecodeNetwork",
    "DecodeOptions",
    "DecodeRequest",
    "Decoded",
    "RolloutEngine",
    "Rollouts",
]
