r"""The exact likelihood of samplers whose unmasking order is a function of the state.

Where x_t alone decides which positions are revealed next (left to right, the surest first, the
widest margin first), a text fixes its own reveal pattern: replaying the sampler with the true
tokens gives -log p(x) itself, no bound (DUEL, arXiv 2603.01367). With a latent that is drawn once
and whose component decides on the order, every component is replayed, log p = logsumexp_k(log w_k +
replay_k).

Shape legend: R rows, M components, L positions, G groups, V vocabulary. Unit: nats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.corruption import sampling_times
from lkf_plugin.errors import UserError
from lkf_plugin.kernel import entropy
from lkf_plugin.latents.structure import in_double
from lkf_plugin.likelihood.few_step import FewStepNats
from lkf_plugin.likelihood.step_model import StepLawModel

Rule = Callable[[Tensor], Tensor]
"""log-probabilities [R, L, V] -> priority [R, L]; the largest among the masked go first."""


def left_to_right(logp_RLV: Tensor) -> Tensor:
    """The first masked positions."""
    positions_L = torch.arange(logp_RLV.shape[1], device=logp_RLV.device)
    return -positions_L.to(logp_RLV.dtype).expand(logp_RLV.shape[:2])


def confidence(logp_RLV: Tensor) -> Tensor:
    """Where the likeliest token is likeliest."""
    return logp_RLV.amax(-1)


def margin(logp_RLV: Tensor) -> Tensor:
    """Where the likeliest token leads the second by most probability."""
    top_RL2 = logp_RLV.topk(2, dim=-1).values.exp()
    return top_RL2[..., 0] - top_RL2[..., 1]


def certainty(logp_RLV: Tensor) -> Tensor:
    """Where the entropy is least."""
    return -entropy(logp_RLV)


RULES: dict[str, Rule] = {
    "left_to_right": left_to_right,
    "confidence": confidence,
    "margin": margin,
    "certainty": certainty,
}


def find_rule(name: str) -> Rule:
    """The rule of a name.

    Raises:
        UserError: an unknown name.
    """
    if name not in RULES:
        raise UserError(f"The unmasking rule {name} is unknown: take one of {', '.join(RULES)}.")
    return RULES[name]


def next_positions(priority_RL: Tensor, masked_RL: Tensor, steps_left: int) -> Tensor:
    """What a step reveals: the first ceil(masked / steps left) by priority, bool [R, L].

    Ties, up to a thousandth, go to the position that comes first. They are common where nothing is
    visible (a trunk without absolute positions says the same everywhere), and what rounding makes
    of them would differ between batches.
    """
    count_R1 = -(-masked_RL.sum(-1, keepdim=True) // steps_left)
    priority_RL = priority_RL.double().round(decimals=3).masked_fill(~masked_RL, -torch.inf)
    order_RL = priority_RL.argsort(dim=-1, descending=True, stable=True)
    ranks_L = torch.arange(priority_RL.shape[1], device=priority_RL.device)
    rank_RL = torch.empty_like(order_RL).scatter_(-1, order_RL, ranks_L.expand_as(order_RL))
    return masked_RL & (rank_RL < count_R1)


def replay(
    model: StepLawModel, x_RL: Tensor, num_steps: int, rule: Rule, free_RL: Tensor | None = None
) -> FewStepNats:
    """-log p(x) where the marginal denoiser at x_t decides on the order, for any structure.

    Args:
        model: the sampler's step.
        x_RL: clean tokens.
        num_steps: J.
        rule: applied to log sum_k pi(z_g = k) P_i^k.
        free_RL: as in ``few_step_nelbo``.

    Returns:
        Exact values with the latent redrawn in each step, and drawn once at the start.
    """
    return replay_and_greedy(model, x_RL, num_steps, rule, free_RL)[0]


@torch.no_grad()
def replay_and_greedy(
    model: StepLawModel, x_RL: Tensor, num_steps: int, rule: Rule, free_RL: Tensor | None = None
) -> tuple[FewStepNats, Tensor]:
    """``replay``, and whether the sampler that always takes the likeliest token says x, bool [R].

    Where all tokens of a step are the marginal denoiser's likeliest, that sampler's next state is
    the replay's; so it says x exactly if they are in every step.
    """
    masked_RL = torch.ones_like(x_RL, dtype=torch.bool) if free_RL is None else free_RL.clone()
    structure = model.structure
    redrawn_R = torch.zeros(len(x_RL), dtype=torch.float64, device=x_RL.device)
    greedy_R = torch.ones(len(x_RL), dtype=torch.bool, device=x_RL.device)
    start: Any = None
    ell_RGM = torch.zeros(())
    for j, tau in enumerate(sampling_times(num_steps, 0.0)[:num_steps]):
        state_RL = torch.where(masked_RL, model.mask_index, x_RL)
        law, logp_RMLV = model.law(state_RL, tau)
        potentials, logp_RMLV = in_double(law), logp_RMLV.double()
        marginal_RLV = structure.marginal_log_probs(potentials, logp_RMLV)
        chosen_RL = next_positions(rule(marginal_RLV), masked_RL, num_steps - j)
        greedy_R &= ((marginal_RLV.argmax(-1) == x_RL) | ~chosen_RL).all(-1)
        index_RMLV = x_RL[:, None, :, None].expand(*logp_RMLV.shape[:-1], 1)
        logp_RML = logp_RMLV.gather(-1, index_RMLV).squeeze(-1)
        step_RGM = structure.blocks.sums(torch.where(chosen_RL[:, None], logp_RML, 0.0))
        redrawn_R -= structure.log_psi(potentials, step_RGM)
        start = potentials if j == 0 else start
        ell_RGM = step_RGM if j == 0 else ell_RGM + step_RGM
        masked_RL = masked_RL & ~chosen_RL
    return FewStepNats(redrawn_R, -structure.log_psi(start, ell_RGM)), greedy_R


@torch.no_grad()
def committed_replay(
    model: StepLawModel, x_RL: Tensor, num_steps: int, rule: Rule, free_RL: Tensor | None = None
) -> Tensor:
    """-log p(x) where one component, drawn at the start, speaks and decides on the order, [R].

    M replays; for structures of one latent per sequence.

    Raises:
        UserError: latents per block, whose M^G orders cannot be listed.
    """
    if model.structure.blocks.count(x_RL.shape[1]) != 1:
        raise UserError(
            "An order of its own per component needs one latent per sequence: take latent=sequence."
        )
    rows, length = x_RL.shape
    M = model.structure.components
    component_Q = torch.arange(M, device=x_RL.device).repeat(rows)
    x_QL = x_RL.repeat_interleave(M, 0)
    free_RL = torch.ones_like(x_RL, dtype=torch.bool) if free_RL is None else free_RL
    masked_QL = free_RL.repeat_interleave(M, 0)
    ell_Q = torch.zeros(rows * M, dtype=torch.float64, device=x_RL.device)
    start: Any = None
    for j, tau in enumerate(sampling_times(num_steps, 0.0)[:num_steps]):
        state_QL = torch.where(masked_QL, model.mask_index, x_QL)
        law, logp_Q1LV = model.law(state_QL, tau, component_Q)
        logp_QLV = logp_Q1LV[:, 0].double()
        chosen_QL = next_positions(rule(logp_QLV), masked_QL, num_steps - j)
        logp_QL = logp_QLV.gather(-1, x_QL[..., None]).squeeze(-1)
        ell_Q += torch.where(chosen_QL, logp_QL, 0.0).sum(-1)
        if j == 0:
            start = law._make(part[::M].double() for part in law)
        masked_QL = masked_QL & ~chosen_QL
    return -model.structure.log_psi(start, ell_Q.view(rows, 1, M))
