"""The step laws of a trained network, in the form that the estimators take.

Shape legend: B states, M components, L positions, V outcomes ([MASK] included). Unit: nats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corruption import sigma_from_kept
from lkf_plugin.subs import NEG_INFINITY


class StepLaw(Protocol):
    """(x_t, t, s) -> the components' law of x_s; all that the estimators need of a model."""

    def __call__(self, xt_BL: Tensor, t: float, s: float) -> tuple[Tensor, Tensor]:
        """logw_BM and logp_BMLV, float64; only masked positions are read."""
        ...


def network_law(
    backbone: LatentKernelBackbone,
    form: str = "analytic",
    process_sigma: Callable[[Tensor], Tensor] = lambda sigma_B: sigma_B,
    two_time: bool = True,
) -> StepLaw:
    """The law of one step of a network.

    Args:
        backbone: in eval mode.
        form: ``learned`` (one softmax over tokens and [MASK]) or ``analytic`` ([MASK] keeps
            exactly 1 - p_rev).
        process_sigma: what the network is told of sigma (a text checkpoint's ``_process_sigma``).
        two_time: whether the network knows s; one trained on clean endpoints does not.
    """
    assert form in ("analytic", "learned")
    mask = backbone.mask_index

    @torch.no_grad()
    def law(xt_BL: Tensor, t: float, s: float) -> tuple[Tensor, Tensor]:
        rows, M = xt_BL.shape[0], backbone.num_components
        t_B = torch.full((rows,), t, dtype=torch.float32, device=xt_BL.device)
        s_B = torch.full_like(t_B, s) if two_time else None
        state = backbone.encode(xt_BL, process_sigma(sigma_from_kept(t_B)), s_B)
        logw_BM = torch.log_softmax(backbone.route(state).double(), dim=-1)
        logits_RLV = backbone.logits(backbone.branch(state)).double()
        if form == "analytic":
            p = torch.tensor((s - t) / (1.0 - t), dtype=torch.float64)
            logits_RLV[..., mask] = NEG_INFINITY
            logp_RLV = torch.log_softmax(logits_RLV, dim=-1) + torch.log(p)
            logp_RLV[..., mask] = torch.log1p(-p)
        else:
            logp_RLV = torch.log_softmax(logits_RLV, dim=-1)
        return logw_BM, logp_RLV.unflatten(0, (rows, M))

    return law
