"""The few-step NELBO against the enumerated likelihood of tiny samplers."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.corruption import reveal_probabilities, sampling_times
from lkf_plugin.decode.noise import mix
from lkf_plugin.latents.sequence import Sequence
from lkf_plugin.likelihood.few_step import (
    few_step_nelbo,
    nats_of_pattern,
    paired_difference,
    share_closed,
)
from lkf_plugin.likelihood.paths import drawn_steps, reveal_steps, step_chances
from tests.latents.enumeration import (
    CASES,
    STRINGS,
    L,
    all_latents,
    log_prior,
)
from tests.likelihood.tables import MASK, SteadyModel, TableModel, all_patterns

every_structure = pytest.mark.parametrize("structure", CASES.values(), ids=CASES.keys())
REDRAWN, FROZEN = 0, 1


def by_pattern(model, x_XL, num_steps):
    """-log p(x | pattern), redrawn and frozen, [2, X, patterns]."""
    pattern_PL = all_patterns(num_steps)
    x_RL = x_XL.repeat_interleave(len(pattern_PL), 0)
    nats = nats_of_pattern(
        model,
        x_RL,
        pattern_PL.repeat(len(x_XL), 1),
        sampling_times(num_steps, 0.0),
        torch.ones_like(x_RL, dtype=torch.bool),
    )
    return torch.stack(list(nats)).view(2, len(x_XL), -1)


@every_structure
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_bound_holds_for_the_enumerated_sampler(structure, num_steps):
    nats_2XP = by_pattern(TableModel(structure), STRINGS, num_steps)
    p_J_2X = (-nats_2XP).exp().mean(-1)
    # what the patterns' likelihoods add up to is a law of text, hence the sampler's
    torch.testing.assert_close(p_J_2X.sum(-1), torch.ones(2, dtype=torch.float64))
    slack_2X = nats_2XP.mean(-1) + p_J_2X.log()
    assert (slack_2X > -1e-12).all()
    if num_steps == 1:
        assert slack_2X.abs().max() < 1e-12
    else:
        assert slack_2X.max() > 1e-3


@every_structure
def test_frozen_pattern_is_the_sum_over_all_latents(structure):
    model, x_L, step_L = TableModel(structure), STRINGS[[17]], torch.tensor([[1, 0, 2, 1]])
    tau = sampling_times(3, 0.0)
    found = nats_of_pattern(model, x_L, step_L, tau, torch.ones_like(x_L, dtype=torch.bool))
    z_ZG = all_latents(structure)
    open_1L = torch.full((1, L), MASK)
    joint_Z = log_prior(structure, model.law(open_1L, 1.0)[0], z_ZG)[0]
    component_ZL = z_ZG[:, structure.blocks.group_of(L)]
    redrawn = 0.0
    for j in range(3):
        state_1L = torch.where(step_L >= j, MASK, x_L)
        p, logp_1MLV = model.law(state_1L, tau[j])
        ell_Z = torch.zeros(len(z_ZG), dtype=torch.float64)
        for i in (step_L[0] == j).nonzero().flatten().tolist():
            ell_Z += logp_1MLV[0, component_ZL[:, i], i, x_L[0, i]]
        joint_Z = joint_Z + ell_Z
        redrawn -= torch.logsumexp(log_prior(structure, p, z_ZG)[0] + ell_Z, 0).item()
    assert found.frozen_B.item() == pytest.approx(-torch.logsumexp(joint_Z, 0).item(), abs=1e-12)
    assert found.redrawn_B.item() == pytest.approx(redrawn, abs=1e-12)


@every_structure
def test_bound_is_the_likelihood_where_the_posterior_of_the_latent_is_resolved(structure):
    model = SteadyModel(structure)
    exact_X = -by_pattern(model, STRINGS, 1)[REDRAWN, :, 0]
    nats_2XP = by_pattern(model, STRINGS, 3)
    torch.testing.assert_close(nats_2XP, -exact_X[None, :, None].expand_as(nats_2XP))


def test_one_component_is_mdlms_bound_with_as_many_times():
    """sum_j 1 / (J - j) E_{x_{t_j}} sum_{i masked} -log P_i, MDLM's discrete-time loss."""
    model, J = TableModel(Sequence(1)), 3
    reveal = reveal_probabilities(J, 0.0)
    x_1L = STRINGS[[50]]
    expected = 0.0
    for pattern_L in all_patterns(J):
        for j in range(J):
            masked_1L = (pattern_L >= j)[None]
            scores = model.score(torch.where(masked_1L, MASK, x_1L), x_1L, masked_1L, 1.0)
            expected -= reveal[j] * scores.logp_RML.sum().item() / J**L
    nats_2P = by_pattern(model, x_1L, J)[:, 0]
    assert nats_2P[REDRAWN].mean().item() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(nats_2P[REDRAWN], nats_2P[FROZEN])


@every_structure
def test_many_steps_tend_to_the_marginal_nelbo(structure):
    """For J -> infinity tokens appear one by one, in any order, from the marginal denoiser."""
    model, x_L = TableModel(structure), STRINGS[50]
    pairs = [(v, r) for v in range(2**L) for r in range(1, 2**L) if v & r == 0]
    bits_L = 2 ** torch.arange(L)
    seen_NL = (torch.tensor([v for v, _ in pairs])[:, None] & bits_L) > 0
    new_NL = (torch.tensor([r for _, r in pairs])[:, None] & bits_L) > 0
    x_NL = x_L.expand(len(pairs), -1)
    p, logp_NML = model.score(torch.where(seen_NL, x_NL, MASK), x_NL, new_NL, 1.0)
    nats_N = -structure.log_psi(p, structure.blocks.sums(logp_NML))
    seen_N, new_N = seen_NL.sum(-1).double(), new_NL.sum(-1).double()

    def bound(J):
        total = 0.0
        for j in range(J):
            chance_N = (j / J) ** seen_N * (1 / J) ** new_N
            total += (chance_N * (1 - (j + 1) / J) ** (L - seen_N - new_N) * nats_N).sum().item()
        return total

    # one at a time: each order has chance 1 / L!
    single_N = new_N == 1
    orders = math.factorial(L)
    weight_N = torch.tensor(
        [math.factorial(int(n)) * math.factorial(L - int(n) - 1) / orders for n in seen_N]
    )
    nelbo = (weight_N * nats_N)[single_N].sum().item()
    gaps = [abs(bound(J) - nelbo) for J in (4, 40, 400)]
    assert gaps[1] < gaps[0] / 3 and gaps[2] < gaps[1] / 5 and gaps[2] < 0.03
    enumerated = by_pattern(model, x_L[None], 4)[REDRAWN].mean().item()
    assert bound(4) == pytest.approx(enumerated, abs=1e-12)


@every_structure
def test_estimate_agrees_with_the_mean_over_patterns(structure):
    model, x_BL = TableModel(structure), STRINGS[[50]].expand(400, -1)
    exact_2 = by_pattern(model, STRINGS[[50]], 2).mean(-1)[:, 0]
    found = few_step_nelbo(model, x_BL, 2, mix(1, torch.arange(400)), paths=4, batch_rows=150)
    for nats_B, exact in zip(found, exact_2, strict=True):
        error = nats_B.std() / 20
        assert (nats_B.mean() - exact).abs() < 4.5 * error + 1e-9


def test_prompt_is_given_and_rows_that_reveal_nothing_are_not_asked():
    model = TableModel(CASES["tree, two blocks"])
    x_BL = STRINGS[:9]
    free_BL = torch.tensor([False, True, True, False]).expand(9, -1)
    found = few_step_nelbo(model, x_BL, 64, mix(1, torch.arange(9)), free_BL)
    assert model.calls <= 9 * (1 + 2)  # the start, and a call per free position
    # over all fillings of the gap the sampler's likelihood is one
    gap_XL = STRINGS[(STRINGS[:, 0] == 1) & (STRINGS[:, 3] == 2)]
    same_XL = free_BL[:1].expand(9, -1)
    total = few_step_nelbo(model, gap_XL, 1, mix(1, torch.arange(9)), same_XL)
    assert total.redrawn_B.neg().exp().sum().item() == pytest.approx(1)
    assert found.redrawn_B.shape == (9,)


def test_paths_are_nested_and_follow_the_grid():
    seed_B = mix(5, torch.arange(2000))
    steps = {J: drawn_steps(seed_B, 0, 16, reveal_probabilities(J, 0.0)) for J in (1, 2, 4, 8)}
    assert (steps[1] == 0).all()
    for J in (2, 4):
        assert torch.equal(steps[J], steps[2 * J] // 2)
    share_J = torch.bincount(steps[8].flatten(), minlength=8) / steps[8].numel()
    assert (share_J - 1 / 8).abs().max() < 0.01
    assert not torch.equal(drawn_steps(seed_B, 1, 16, [0.5, 1.0]), steps[2])
    assert step_chances([0.25, 0.5, 0.9]) == [0.25, 0.375, 0.375]
    u_BL = torch.tensor([[0.0, 0.249, 0.251, 0.62, 0.63, 0.999]], dtype=torch.float64)
    assert reveal_steps(u_BL, [0.25, 0.5, 1.0]).tolist() == [[0, 0, 1, 1, 2, 2]]


def test_comparisons_of_the_same_sequences():
    g = torch.Generator().manual_seed(0)
    hard_B = torch.rand(4000, generator=g, dtype=torch.float64)
    endless_B = 3 + 5 * hard_B
    factorised_B = endless_B + 2 + hard_B
    ours_B = factorised_B - 0.5 * (2 + hard_B) + 0.1 * torch.randn(4000, generator=g).double()
    difference = paired_difference(ours_B, factorised_B)
    assert difference.value == pytest.approx(-1.25, abs=4 * difference.se)
    assert difference.se < 0.2 * paired_difference(ours_B, factorised_B.flip(0)).se
    share = share_closed(factorised_B, ours_B, endless_B)
    assert share.value == pytest.approx(0.5, abs=4 * share.se) and share.se < 0.002
