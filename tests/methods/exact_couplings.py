"""ReDi's couplings of few strings, exactly: what a perfect factorised model makes of one.

Shape legend: L positions, V values, X listed strings (Y as noise, Z on the way). Unit: nats.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
