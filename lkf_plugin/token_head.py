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

BACKENDS = ("full", "chunked", "torch")


def token_logprob(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    mask_index: int | None,
    backend: str = "chunked",
    chunk_rows: int = 1024,
) -> Tensor:
    """log P(target) of each row under softmax(hidden @ weight.T + bias), shape [N], in nats.

    Args:
        hidden_ND: rows after the final norm.
        weight_VD, bias_V: the output projection; the bias may be None.
        target_N: token ids.
        mask_index: token whose probability is zero (SUBS), or None where [MASK] is an outcome.
        backend: ``full`` holds [N, V] logits; ``chunked`` holds ``chunk_rows`` rows of them and
            recomputes them in the backward pass; ``torch`` is ``F.linear_cross_entropy``
            (torch >= 2.13; float32 or float64 only).
        chunk_rows: rows a chunk of the ``chunked`` backend.

    Returns:
        float32 (float64 for float64 inputs) whatever the autocast: under bf16 autocast the matrix
        product is bf16 and everything after it is float32.

    Raises:
        UserError: unknown backend, or one that this torch lacks.
    """
    if backend == "full":
        logits = F.linear(hidden_ND, weight_VD, bias_V)
        return _rows_logprob(logits, target_N, mask_index)
    if backend == "chunked":
        return _ChunkedLogprob.apply(
            hidden_ND, weight_VD, bias_V, target_N, mask_index, chunk_rows, _gemm_dtype(hidden_ND)
        )
    if backend == "torch":
        return _torch_logprob(hidden_ND, weight_VD, bias_V, target_N, mask_index)
    raise UserError(f"loss.token_head={backend} is unknown: take one of {', '.join(BACKENDS)}.")


def _gemm_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would run a linear layer on ``x``."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def _banned(logits_NV: Tensor, mask_index: int | None) -> Tensor:
    """Adds SUBS' -1e6 at the mask, in place on a tensor of our own."""
    if mask_index is not None:
        logits_NV[:, mask_index] += NEG_INFINITY
    return logits_NV


def _rows_logprob(logits_NV: Tensor, target_N: Tensor, mask_index: int | None) -> Tensor:
    logits_NV = at_least_float32(logits_NV)
    if mask_index is not None:
        ban_V = torch.zeros(logits_NV.shape[-1], dtype=logits_NV.dtype, device=logits_NV.device)
        ban_V[mask_index] = NEG_INFINITY
        logits_NV = logits_NV + ban_V
    picked = logits_NV.gather(-1, target_N[:, None]).squeeze(-1)
    return picked - torch.logsumexp(logits_NV, dim=-1)


class _ChunkedLogprob(torch.autograd.Function):
    """Row chunks of the head; the backward pass rebuilds each chunk's softmax.

    Rows whose incoming weight is exactly zero are left out of the backward pass: in the mixture
    that weight is -omega_b gamma_bk, so components without responsibility cost nothing there.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, mask_index, chunk_rows, gemm_dtype):  # type: ignore[no-untyped-def]
        out_dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        weight_c = weight.to(gemm_dtype)
        bias_c = None if bias is None else bias.to(gemm_dtype)
        n = hidden.shape[0]
        logp = torch.empty(n, dtype=out_dtype, device=hidden.device)
        lse = torch.empty(n, dtype=out_dtype, device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, n, chunk_rows):
                rows = slice(start, start + chunk_rows)
                logits = F.linear(hidden[rows].to(gemm_dtype), weight_c, bias_c).to(out_dtype)
                _banned(logits, mask_index)
                lse[rows] = torch.logsumexp(logits, dim=-1)
                logp[rows] = logits.gather(-1, target[rows, None]).squeeze(-1) - lse[rows]
        ctx.save_for_backward(hidden, weight, bias, target, lse)
        ctx.mask_index, ctx.chunk_rows, ctx.gemm_dtype = mask_index, chunk_rows, gemm_dtype
        return logp

    @staticmethod
    def backward(ctx, grad_logp):  # type: ignore[no-untyped-def]
        hidden, weight, bias, target, lse = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        weight_c = weight.to(ctx.gemm_dtype)
        bias_c = None if bias is None else bias.to(ctx.gemm_dtype)
        grad_hidden = torch.zeros_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=lse.dtype) if need_weight else None
        grad_bias = torch.zeros_like(bias, dtype=lse.dtype) if need_bias else None
        live = grad_logp.nonzero().squeeze(-1)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, live.numel(), ctx.chunk_rows):
                rows = live[start : start + ctx.chunk_rows]
                h = hidden[rows].to(ctx.gemm_dtype)
                logits = F.linear(h, weight_c, bias_c).to(lse.dtype)
                _banned(logits, ctx.mask_index)
                # d logp / d logits = onehot - softmax, times the incoming weight
                grad = logits.sub_(lse[rows, None]).exp_().neg_()
                grad[torch.arange(rows.numel(), device=rows.device), target[rows]] += 1
                grad *= grad_logp[rows, None]
                grad_c = grad.to(ctx.gemm_dtype)
                if grad_hidden is not None:
                    grad_hidden[rows] = (grad_c @ weight_c).to(hidden.dtype)
                if grad_weight is not None:
                    if grad_c.dtype == lse.dtype:
                        grad_weight.addmm_(grad_c.T, h)
                    else:
                        grad_weight += grad_c.T @ h
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        if grad_bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None


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
