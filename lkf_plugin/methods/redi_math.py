"""ReDi's mathematics: noise and text tied by a coupling, whose conditional total correlation falls.

A coupling is a law of pairs: noise x_T from the prior, text x_0 from a model that started there. A
model trained on the bridge between both ends of a pair makes the next coupling (a rectification).
The factorised step of a model is off by the total correlation that the coupling leaves between
positions given the noise, and a rectification with exact factorised steps lowers it.

From samples, TC(x_0 | x_T) is what ``information.sample_tc`` estimates for one noise. ReDi's own
metric for texts takes each of its 8 samples per noise as unlike the others, and may be negative.

Shape legend: B sequences, L positions, K ids, V values, X listed strings (Y as noise, Z on the
way). Unit: nats.
Source: Yoo et al. 2025 (ReDi: Rectified Discrete Flow), and Ugness/ReDi_discrete, Rectification.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bridge(x0_BL: Tensor, xT_BL: Tensor, alpha_B: Tensor, u_BL: Tensor) -> Tensor:
    """x_t of a pair: the text where the uniform ``u`` is at most alpha, else the pair's noise."""
    return torch.where(u_BL <= alpha_B[:, None], x0_BL, xT_BL)


def bridge_from(
    x0_BL: Tensor, xT_BL: Tensor, alpha_B: Tensor, u_BL: Tensor, given_B: Tensor
) -> Tensor:
    """The same where ``xT`` is already clean at a share ``given`` of its positions.

    Source: ReDi, Rectification.nll with ``given_t``.
    """
    return bridge(x0_BL, xT_BL, alpha_B, given_B[:, None] + (1 - given_B[:, None]) * u_BL)


def simple_loss(logp_BLK: Tensor, x0_BL: Tensor) -> Tensor:
    """Cross-entropy of the text at every position, [B, L]."""
    return -logp_BLK.gather(-1, x0_BL[..., None]).squeeze(-1)


# --- exact couplings of few strings --------------------------------------------------------------


def conditional_total_correlation(
    coupling_YX: Tensor, noise_Y: Tensor, strings_XL: Tensor
) -> Tensor:
    """TC(x_0 | x_T) of a coupling, exact.

    Args:
        coupling_YX: law of the text per noise; rows sum to one.
        noise_Y: law of the noise.
        strings_XL: the strings, all of them in lexical order or not.
    """
    joint_Y = _entropy(coupling_YX)
    values = int(strings_XL.max()) + 1
    onehot_XLV = torch.nn.functional.one_hot(strings_XL, values).to(coupling_YX)
    marginal_YLV = torch.einsum("yx,xlv->ylv", coupling_YX, onehot_XLV)
    return (noise_Y * (_entropy(marginal_YLV).sum(-1) - joint_Y)).sum()


def _entropy(p: Tensor) -> Tensor:
    """-sum p log p over the last dimension; zero chances count nothing."""
    return -torch.xlogy(p, p).sum(-1)


def rectify(coupling_YX: Tensor, noise_Y: Tensor, strings_XL: Tensor, num_steps: int) -> Tensor:
    """The coupling [Y, X] of a perfect factorised model of the bridge and ``num_steps`` steps.

    Noise and text are over the same strings. In the step from signal alpha to alpha' each position
    jumps with chance (alpha' - alpha) / (1 - alpha) to a draw from its own conditional law, which
    is all that a factorised model knows.
    """
    count, length = strings_XL.shape
    same_XXL = (strings_XL[:, None] == strings_XL[None]).to(coupling_YX)
    values = int(strings_XL.max()) + 1
    onehot_XLV = torch.nn.functional.one_hot(strings_XL, values).to(coupling_YX)
    pair_YX = noise_Y[:, None] * coupling_YX
    chain_YX = torch.eye(count, dtype=coupling_YX.dtype)
    for step in range(num_steps):
        alpha, later = step / num_steps, (step + 1) / num_steps
        jump = (later - alpha) / (1 - alpha)
        # chance of each bridge state z of each pair (y, x), a product over positions
        through_ZYX = torch.ones(count, count, count, dtype=coupling_YX.dtype)
        for i in range(length):
            through_ZYX = through_ZYX * (
                alpha * same_XXL[:, None, :, i] + (1 - alpha) * same_XXL[:, :, None, i]
            )
        weight_ZYX = through_ZYX * pair_YX
        total_Z = weight_ZYX.sum((1, 2))
        clean_ZLV = torch.einsum("zyx,xlv->zlv", weight_ZYX, onehot_XLV)
        clean_ZLV = clean_ZLV / total_Z.clamp_min(1e-300)[:, None, None]
        next_ZLV = jump * clean_ZLV + (1 - jump) * onehot_XLV
        kernel_ZX = torch.ones(count, count, dtype=coupling_YX.dtype)
        for i in range(length):
            kernel_ZX = kernel_ZX * next_ZLV[:, i][:, strings_XL[:, i]]
        chain_YX = chain_YX @ kernel_ZX
    return chain_YX
