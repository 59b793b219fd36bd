"""Di4C's network: a denoiser with one more token that carries the latent.

The latent z in [0, 1) is a number per sequence. Its embedding stands behind the text as one more
token, which has no position and no output. Without a latent the network is the denoiser as it is.

Shape legend: B sequences, L positions, D width, V vocabulary.
Source: sony/di4c, sdtt/ dit_orig.DIT.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lkf_plugin.backbone.stack import run_stack
from lkf_plugin.methods.denoiser import Denoiser
from lkf_plugin.methods.di4c_math import EMBEDDING, latent_embedding

LATENT = "latent_projection"  # its weights' prefix, the original's name
HIDDEN = 512


def add_latent(network: Denoiser, width: int) -> Denoiser:
    """The network with an embedding of the latent, whose weights come last."""
    layers = (nn.Linear(EMBEDDING, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, width))
    network.add_module(LATENT, nn.Sequential(*layers))
    return network


def latent_logits(network: Denoiser, x_BL: Tensor, sigma_B: Tensor, z_B: Tensor | None) -> Tensor:
    """Logits [B, L, V] at noise ``sigma_B`` under latents ``z_B``, or under none."""
    if z_B is None:
        return network(x_BL, sigma_B)
    state = network.embed(x_BL, sigma_B)
    project = network.get_submodule(LATENT)
    weight = next(project.parameters())
    token_BD = project(latent_embedding(z_B).to(weight.dtype))
    h = torch.cat((state.h_BLD, token_BD[:, None].to(state.h_BLD.dtype)), dim=1)
    cos, sin = network.rotary_emb(x_BL.shape[1])
    unturned = torch.ones_like(cos[:1]), torch.zeros_like(sin[:1])
    angles = torch.cat((cos, unturned[0])), torch.cat((sin, unturned[1]))
    h = run_stack(network.blocks, h, state.act_BC, angles, network.activation_checkpointing)
    return network.output_logits(h[:, :-1], state.act_BC)
