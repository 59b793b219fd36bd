"""Token heads of two GPU packages: Liger kernels and Apple's Cut Cross-Entropy.

Both are optional. Each adds SUBS' ban of the mask to the bias, so the packages see a plain linear
cross-entropy with weighted rows.

Shape legend: N rows, D width, V vocabulary.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import inspect

import torch
from packaging.version import Version
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.subs import NEG_INFINITY

# Before this release reduction='none' gave wrong weight gradients where rows are weighted.
LIGER_SINCE = Version("0.8.2")
INSTEAD = "or take loss.token_head=chunked."


def installed_version(package: str) -> Version | None:
    """An installed package's version, or None."""
    try:
        return Version(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return None


def check_backend(backend: str, device: torch.device) -> None:
    """Whether ``liger`` or ``cce`` can run here.

    Raises:
        UserError: the package is missing or too old, or the device is no CUDA GPU.
    """
    if backend == "liger":
        version = installed_version("liger-kernel")
        if version is None or version < LIGER_SINCE:
            raise UserError(
                "loss.token_head=liger needs liger-kernel >= 0.8.2 (older ones have wrong "
                f"gradients for weighted rows; found {version}): pip install "
                "'liger-kernel>=0.8.2', " + INSTEAD
            )
    elif importlib.util.find_spec("cut_cross_entropy") is None:
        raise UserError(
            "loss.token_head=cce needs Cut Cross-Entropy: pip install cut-cross-entropy, " + INSTEAD
        )
    if device.type != "cuda":
        raise UserError(f"loss.token_head={backend} runs on a CUDA GPU only: {INSTEAD[3:]}")


def banned_bias(
    weight_VD: Tensor, bias_V: Tensor | None, mask_index: int | None, dtype: torch.dtype
) -> Tensor | None:
    """The bias with the mask's entry out of reach, finite in ``dtype``; None where nothing is."""
    if mask_index is None:
        return None if bias_V is None else bias_V.to(dtype)
    bias = torch.zeros_like(weight_VD[:, 0]) if bias_V is None else bias_V
    low = max(NEG_INFINITY, torch.finfo(dtype).min / 2)
    ban_V = torch.zeros_like(bias)
    ban_V[mask_index] = low
    return (bias + ban_V).to(dtype)


def liger_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    mask_index: int | None,
    dtype: torch.dtype,
) -> Tensor:
    """log P(target) by Liger's fused linear cross-entropy, [N] float32; products in ``dtype``."""
    check_backend("liger", hidden_ND.device)
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss(reduction="none")
    bias = banned_bias(weight_VD, bias_V, mask_index, dtype)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        nll_N = loss(weight_VD.to(dtype), hidden_ND.to(dtype), target_N, bias)
    return -nll_N.float()


def cce_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    mask_index: int | None,
    dtype: torch.dtype,
) -> Tensor:
    """log P(target) by Cut Cross-Entropy's exact kernel, [N] float32; products in ``dtype``.

    Raises:
        UserError: also for products that are not in half precision, which its kernels need.
    """
    check_backend("cce", hidden_ND.device)
    if dtype not in (torch.bfloat16, torch.float16):
        raise UserError(
            "loss.token_head=cce computes in half precision: set trainer.precision=bf16-mixed, "
            + INSTEAD
        )
    from cut_cross_entropy import linear_cross_entropy

    bias = banned_bias(weight_VD, bias_V, mask_index, dtype)
    if bias is not None and not _takes_bias():
        raise UserError(
            "This cut-cross-entropy knows no bias: install it from its repository, " + INSTEAD
        )
    extra = {} if bias is None else {"bias": bias}
    with torch.autocast(hidden_ND.device.type, enabled=False):
        nll_N = linear_cross_entropy(
            hidden_ND.to(dtype), weight_VD.to(dtype), target_N,
            reduction="none", impl="cce_exact", **extra,
        )  # fmt: skip
    return -nll_N.float()


@functools.cache
def _takes_bias() -> bool:
    from cut_cross_entropy import linear_cross_entropy

    return "bias" in inspect.signature(linear_cross_entropy).parameters
