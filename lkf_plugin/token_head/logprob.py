"""Token log-probabilities from hidden states, without holding every logit.

The one place where training and scoring compute a log-softmax over the vocabulary. Only rows that
count are given: masked, non-padding positions, gathered before the head.

Shape legend: N rows, D width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.subs import NEG_INFINITY, at_least_float32
from lkf_plugin.token_head.fused import cce_logprob, liger_logprob
from lkf_plugin.token_head.tiled import (
    Head,
    tiled_gradients,
    tiled_logprob,
    tiled_logprob_and_gradients,
)

BACKENDS = ("full", "chunked", "torch", "liger", "cce")


def token_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    mask_index: int | None,
    backend: str = "chunked",
    chunk_rows: int = 4096,
) -> Tensor:
    """log P(target) of each row under softmax(hidden @ weight.T + bias), shape [N], in nats.

    Args:
        hidden_ND: rows after the final norm.
        weight_VD, bias_V: the output projection; the bias may be None.
        target_N: token ids.
        mask_index: token whose probability is zero (SUBS), or None where [MASK] is an outcome.
        backend: ``full`` holds [N, V] logits; ``chunked`` holds tiles of ``chunk_rows`` rows and
            recomputes them in the backward pass; ``torch`` is ``F.linear_cross_entropy``
            (torch >= 2.13; float32 or float64 only); ``liger`` and ``cce`` are GPU packages.
        chunk_rows: rows per chunk of the ``chunked`` backend (a CPU takes at most 256).

    Returns:
        float32 (float64 for float64 inputs) whatever the autocast: under bf16 autocast the matrix
        product is bf16 and everything after it is float32.

    Raises:
        UserError: unknown backend, or one that this machine lacks.
    """
    rows = (hidden_ND, weight_VD, bias_V, target_N, mask_index)
    if backend == "full":
        return _rows_logprob(F.linear(hidden_ND, weight_VD, bias_V), target_N, mask_index)
    if backend == "chunked":
        if torch.is_grad_enabled():
            return _ChunkedLogprob.apply(*rows, chunk_rows, _gemm_dtype(hidden_ND))
        head = Head.cast(weight_VD, bias_V, mask_index, _gemm_dtype(hidden_ND))
        with torch.autocast(hidden_ND.device.type, enabled=False):
            return tiled_logprob(head, hidden_ND.to(head.weight_VD.dtype), target_N, chunk_rows)[0]
    if backend == "torch":
        return _torch_logprob(*rows)
    if backend == "liger":
        return liger_logprob(*rows, _gemm_dtype(hidden_ND))
    if backend == "cce":
        return cce_logprob(*rows, _gemm_dtype(hidden_ND))
    raise UserError(f"loss.token_head={backend} is unknown: take one of {', '.join(BACKENDS)}.")


def weighted_token_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    coefficient_N: Tensor,
    mask_index: int | None,
    backend: str = "chunked",
    chunk_rows: int = 4096,
) -> tuple[Tensor, Tensor]:
    """(sum_n c_n log P(target_n) with its gradient, log P(target_n) [N] without).

    Where the weights are known before the loss (one component; the second phase of two-phase
    training) the ``chunked`` backend makes the gradient while the logits are there: three matrix
    products instead of four. Its backward pass runs once.

    Args:
        coefficient_N: c, no gradient flows into it.
        others: as in ``token_logprob``.
    """
    if backend == "chunked" and torch.is_grad_enabled():
        return _ChunkedWeightedSum.apply(
            hidden_ND, weight_VD, bias_V, target_N, coefficient_N, mask_index, chunk_rows,
            _gemm_dtype(hidden_ND),
        )  # fmt: skip
    logp_N = token_logprob(hidden_ND, weight_VD, bias_V, target_N, mask_index, backend, chunk_rows)
    return (coefficient_N * logp_N).sum(), logp_N.detach()


def _gemm_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would run a linear layer on ``x``."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def _rows_logprob(logits_NV: Tensor, target_N: Tensor, mask_index: int | None) -> Tensor:
    logits_NV = at_least_float32(logits_NV)
    if mask_index is not None:
        ban_V = torch.zeros(logits_NV.shape[-1], dtype=logits_NV.dtype, device=logits_NV.device)
        ban_V[mask_index] = NEG_INFINITY
        logits_NV = logits_NV + ban_V
    picked = logits_NV.gather(-1, target_N[:, None]).squeeze(-1)
    return picked - torch.logsumexp(logits_NV, dim=-1)


class _ChunkedLogprob(torch.autograd.Function):
    """Tiles of the head; the backward pass rebuilds each tile's softmax.

    Rows whose incoming weight is exactly zero are left out of the backward pass: in the mixture
    that weight is -omega_b gamma_bk, so components without responsibility cost nothing there.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, mask_index, chunk_rows, gemm_dtype):  # type: ignore[no-untyped-def]
        head = Head.cast(weight, bias, mask_index, gemm_dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            logp, lse = tiled_logprob(head, hidden.to(gemm_dtype), target, chunk_rows)
        ctx.save_for_backward(hidden, weight, bias, target, lse)
        ctx.mask_index, ctx.chunk_rows, ctx.gemm_dtype = mask_index, chunk_rows, gemm_dtype
        return logp

    @staticmethod
    def backward(ctx, grad_logp):  # type: ignore[no-untyped-def]
        hidden, weight, bias, target, lse = ctx.saved_tensors
        head = Head.cast(weight, bias, ctx.mask_index, ctx.gemm_dtype)
        live = grad_logp.nonzero().squeeze(-1)
        every = live.numel() == grad_logp.numel()
        rows = (x if every else x[live] for x in (hidden, target, lse, grad_logp))
        h, target, lse, c = rows
        with torch.autocast(hidden.device.type, enabled=False):
            grads = tiled_gradients(
                head, h.to(ctx.gemm_dtype), target, lse, c, ctx.chunk_rows,
                ctx.needs_input_grad[:3],
            )  # fmt: skip
        grad_hidden = grads.h_ND
        if grad_hidden is not None:
            grad_hidden = grad_hidden.to(hidden.dtype)
            if not every:
                grad_hidden = torch.zeros_like(hidden).index_copy_(0, live, grad_hidden)
        return (grad_hidden, *_in_dtype(grads.weight_VD, grads.bias_V, weight, bias), *[None] * 4)


class _ChunkedWeightedSum(torch.autograd.Function):
    """sum_n c_n logp_n; the gradient is made in the forward pass and scaled in the backward."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, coefficient, mask_index, chunk_rows, gemm_dtype):  # type: ignore[no-untyped-def]
        head = Head.cast(weight, bias, mask_index, gemm_dtype)
        c = coefficient.detach().to(head.out_dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            logp, grads = tiled_logprob_and_gradients(
                head, hidden.detach().to(gemm_dtype), target, c, chunk_rows,
                ctx.needs_input_grad[:3],
            )  # fmt: skip
        ctx.grads = grads
        ctx.dtypes = (hidden.dtype, weight, bias)
        ctx.mark_non_differentiable(logp)
        return (c * logp).sum(), logp

    @staticmethod
    def backward(ctx, grad_sum, _):  # type: ignore[no-untyped-def]
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError("the weighted head's backward pass runs once: its gradient is gone")
        hidden_dtype, weight, bias = ctx.dtypes
        for part in (grads.h_ND, grads.weight_VD, grads.bias_V):
            if part is not None:
                part *= grad_sum  # in place: these are as large as the head itself
        grad_hidden = None if grads.h_ND is None else grads.h_ND.to(hidden_dtype)
        return (grad_hidden, *_in_dtype(grads.weight_VD, grads.bias_V, weight, bias), *[None] * 5)


def _in_dtype(
    grad_weight: Tensor | None, grad_bias: Tensor | None, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients in their parameters' dtypes."""
    return (
        None if grad_weight is None else grad_weight.to(weight.dtype),
        None if grad_bias is None or bias is None else grad_bias.to(bias.dtype),
    )


def _torch_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    mask_index: int | None,
) -> Tensor:
    if not hasattr(F, "linear_cross_entropy"):
        raise UserError(
            "loss.token_head=torch needs torch >= 2.13 (F.linear_cross_entropy): "
            "upgrade torch or take loss.token_head=chunked."
        )
    # bf16 inputs would give bf16 losses there, which moves log Psi by nats: lift them first.
    dtype = torch.float64 if hidden_ND.dtype == torch.float64 else torch.float32
    bias = torch.zeros_like(weight_VD[:, 0]) if bias_V is None else bias_V
    bias = bias.to(dtype)
    if mask_index is not None:
        ban_V = torch.zeros_like(bias)
        ban_V[mask_index] = NEG_INFINITY
        bias = bias + ban_V
    with torch.autocast(hidden_ND.device.type, enabled=False):
        return -F.linear_cross_entropy(
            hidden_ND.to(dtype),
            weight_VD.to(dtype),
            target_N,
            linear_bias=bias,
            reduction="none",
            options=torch.nn.LinearCrossEntropyOptions(),
        )
