"""The model's own score of finished candidates (paper, Alg. bestofm).

Shape legend: R candidates, L positions, T draws. Unit: nats per sequence; lower is better.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.corruption import NOISE_EPS
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import Stream, uniforms
from lkf_plugin.latents.structure import Structure, in_double
from lkf_plugin.objective.draws import CounterDraws
from lkf_plugin.objective.mixture import Mixture


@torch.no_grad()
def mixture_nelbo(
    network: DecodeNetwork,
    x_RL: Tensor,
    free_RL: Tensor,
    seed_R: Tensor,
    num_draws: int,
    batch_rows: int = 64,
) -> Tensor:
    """Monte Carlo mixture NELBO of candidates, float64 [R].

    Candidates with equal seeds are scored under equal draws of (tau, mask), so that differences
    between the candidates of one sample carry little Monte Carlo noise. The T times of a seed are
    stratified over (NOISE_EPS, 1].

    Args:
        x_RL: finished candidates.
        free_RL: bool; positions that were generated. Tokens of a prompt are never masked.
        seed_R: one seed per sample, the same for its candidates.
        num_draws: T.
        batch_rows: candidates evaluated at once.
    """
    total_R = torch.zeros(x_RL.shape[0], dtype=torch.float64, device=x_RL.device)
    objective = scoring_objective(network.structure)
    for draw in range(num_draws):
        u_R = uniforms(seed_R, draw, 1, Stream.SCORE_TIME).squeeze(-1)
        tau_R = NOISE_EPS + (1 - NOISE_EPS) * (draw + u_R) / num_draws
        u_RL = uniforms(seed_R, draw, x_RL.shape[1], Stream.SCORE_MASK)
        for start in range(0, x_RL.shape[0], batch_rows):
            rows = slice(start, start + batch_rows)
            draws = CounterDraws(
                network.noise,
                network.mask_index,
                tau_R[rows],
                u_RL[rows],
                free_RL[rows],
                network.process_sigma,
            )
            corruption = objective.corrupt(x_RL[rows], free_RL[rows], draws)
            potentials, logp = objective.score(network.backbone, corruption)
            ell = network.structure.blocks.sums(logp.double())
            log_psi = network.structure.log_psi(in_double(potentials), ell)
            total_R[rows] -= corruption.weight_B * log_psi
    return total_R / num_draws


def scoring_objective(structure: Structure[Any]) -> Mixture:
    """The mixture objective outside training: gathered heads, no penalty."""
    settings = {"token_head": "chunked", "chunk_rows": 4096, "lambda_ent": 0.0, "lambda_lb": 0.0}
    return Mixture(settings, structure)
