"""Likelihood of held-out text: the marginal NELBO, and the mixture objective apart.

Only the marginal NELBO bounds the likelihood, so that only it becomes a perplexity. The mixture
objective is a training loss at M > 1: it is reported in nats and never exponentiated.

Shape legend: B sequences, L positions. Unit: nats per token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lkf_plugin.decode.noise import Stream, mix, uniforms
from lkf_plugin.decode.scores import scoring_objective
from lkf_plugin.kernel import entropy
from lkf_plugin.latents.structure import in_double
from lkf_plugin.objective.draws import CounterDraws
from lkf_plugin.objective.likelihood import marginal_nll
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.estimate import Estimate, bootstrap_ratio
from lkf_plugin.runs.load import LoadedRun

DECILES = 10


@torch.no_grad()
def likelihood(
    run: LoadedRun,
    num_sequences: int,
    draws: int = 8,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = True,
    processes: Processes = ALONE,
) -> dict[str, Estimate]:
    """Monte Carlo NELBO of the first held-out sequences, each under ``draws`` stratified times.

    Times are uniform on [eps, 1] with MDLM's ``training.sampling_eps``, one in each of ``draws``
    slices (antithetic in MDLM's word). MDLM averages over that interval; the integral itself is
    (1 - eps) times the average, and both perplexities are given.

    Returns:
        ``nelbo`` and ``mixture_objective`` (nats per token), ``elbo_ppl`` (MDLM's) and
        ``elbo_ppl_integral``, and ``gamma_entropy[i]``: the entropy of the responsibilities in
        the i-th tenth of the noise levels.
    """
    eps = float(run.config.training.sampling_eps)
    rows = run.prepared.valid
    assert rows is not None
    count = min(num_sequences, len(rows))
    device = next(run.module.backbone.parameters()).device

    def of_batch(first: int) -> tuple[np.ndarray, list[tuple[float, float]]]:
        """NELBO, objective and tokens of each sequence [3, B]; (tau, H(gamma)) of each draw."""
        chunk = rows[first : min(first + batch_size, count)]
        x_BL = torch.as_tensor(chunk["input_ids"]).to(device)
        valid_BL = torch.as_tensor(chunk["attention_mask"]).to(device) > 0
        sums_3B = np.zeros((3, len(x_BL)))
        entropies: list[tuple[float, float]] = []
        sums_3B[2] = valid_BL.sum(-1).cpu().numpy()
        seed_B = mix(seed, first + torch.arange(len(x_BL), device=device))
        for one in nats_of_draws(run, x_BL, valid_BL, seed_B, draws):
            sums_3B[0] += one.marginal_B.cpu().numpy() / draws
            sums_3B[1] += one.mixture_B.cpu().numpy() / draws
            entropies += zip(one.tau_B.tolist(), one.entropy_B.tolist(), strict=True)
        return sums_3B, entropies

    title = "likelihood" if progress else None
    parts = processes.dealt(range(0, count, batch_size), of_batch, title)
    nll_S, mixed_S, tokens_S = np.concatenate([sums_3B for sums_3B, _ in parts], 1)
    decile_values: list[list[float]] = [[] for _ in range(DECILES)]
    for tau, value in (pair for _, entropies in parts for pair in entropies):
        decile_values[min(int(tau * DECILES), DECILES - 1)].append(value)
    estimates = nelbo_estimates(ratio_per_token(nll_S, tokens_S), eps)
    estimates["mixture_objective"] = ratio_per_token(mixed_S, tokens_S)
    for i, values in enumerate(decile_values):
        if values:
            estimates[f"gamma_entropy[{i}]"] = Estimate(float(np.mean(values)), None, len(values))
    return estimates


class DrawnNats(NamedTuple):
    """One draw of (tau, mask) of each sequence, float64 [B].

    Attributes:
        tau_B: MDLM times.
        marginal_B: weighted term of the marginal NELBO, nats per sequence.
        mixture_B: that of the mixture objective.
        entropy_B: H(gamma), mean over groups, nats.
    """

    tau_B: Tensor
    marginal_B: Tensor
    mixture_B: Tensor
    entropy_B: Tensor


@torch.no_grad()
def nats_of_draws(
    run: LoadedRun, x_BL: Tensor, valid_BL: Tensor, seed_B: Tensor, draws: int
) -> Iterator[DrawnNats]:
    """The terms whose mean over draws is the NELBO of each sequence.

    Args:
        run: the model.
        x_BL: clean tokens; a place that is not valid keeps what stands there, a mask, too.
        valid_BL: bool; what the likelihood is of.
        seed_B: one seed per sequence: times and masks are a function of it.
        draws: times, one in each of so many slices of [eps, 1].
    """
    eps = float(run.config.training.sampling_eps)
    for draw in range(draws):
        u_B = uniforms(seed_B, draw, 1, Stream.SCORE_TIME).squeeze(-1)
        tau_B = eps + (1 - eps) * (draw + u_B) / draws
        u_BL = uniforms(seed_B, draw, x_BL.shape[1], Stream.SCORE_MASK)
        yield DrawnNats(tau_B, *_nats(run, x_BL, valid_BL, tau_B, u_BL))


def _nats(
    run: LoadedRun, x_BL: Tensor, valid_BL: Tensor, tau_B: Tensor, u_BL: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted marginal and mixture terms of a draw, nats per sequence; H(gamma) per group."""
    module = run.module
    draws = CounterDraws(
        module.noise, module.mask_index, tau_B, u_BL, valid_BL, module._process_sigma
    )
    structure = module.backbone.structure
    objective = scoring_objective(structure)
    corruption = objective.corrupt(x_BL, valid_BL, draws)
    scores, weight_B = objective.score(module.backbone, corruption), corruption.weight_B
    marginal_B = marginal_nll(structure, scores, weight_B, corruption.counted_BL).double().sum(-1)
    ell_BGM = structure.blocks.sums(scores.logp_BML.double())
    posterior = structure.posterior(in_double(scores.potentials), ell_BGM)
    entropy_B = entropy(posterior.gamma_BGM.log()).mean(-1)
    return marginal_B, -weight_B * posterior.log_psi_B, entropy_B


def nelbo_estimates(nelbo: Estimate, eps: float | None) -> dict[str, Estimate]:
    """The NELBO with its perplexities.

    Args:
        nelbo: nats per token, the average over times on [eps, 1].
        eps: the smallest time; None where nothing was averaged over times.

    Returns:
        ``nelbo``; ``elbo_ppl``, its exponential; with ``eps`` also ``elbo_ppl_integral``, that of
        (1 - eps) times it.
    """
    estimates = {"nelbo": nelbo, "elbo_ppl": _exponential(nelbo, 1.0)}
    if eps is not None:
        estimates["elbo_ppl_integral"] = _exponential(nelbo, 1 - eps)
    return estimates


def ratio_per_token(total_S: np.ndarray, tokens_S: np.ndarray) -> Estimate:
    """Sum over sequences per token, its standard error by the bootstrap."""
    draws = bootstrap_ratio(total_S, tokens_S, 1000, 0)
    se = float(draws.std(ddof=1)) if len(total_S) > 1 else None
    return Estimate(float(total_S.sum() / tokens_S.sum()), se, len(total_S))


def _exponential(nats: Estimate, factor: float) -> Estimate:
    """exp(factor * nats), its error to first order."""
    value = math.exp(factor * nats.value)
    return Estimate(value, None if nats.se is None else factor * value * nats.se, nats.n)
