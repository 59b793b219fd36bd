"""The index lists of a backward pass per (sequence, group, component), and what they are for."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone.stack import Places
from lkf_plugin.latents.chain import Chain
from lkf_plugin.latents.draws import drawn_weights, systematic
from lkf_plugin.latents.pairs import distinct_pairs, weighted_pairs
from lkf_plugin.latents.sequence import Sequence
from lkf_plugin.latents.structure import expected_log_prior
from lkf_plugin.latents.tree import Tree
from lkf_plugin.objective.components import HeadSettings, component_scores, counted_places
from lkf_plugin.token_head.logprob import weighted_token_logprob
from tests.tiny import tiny_backbone

FULL = HeadSettings("full")


def test_weighted_pairs_against_a_loop():
    torch.manual_seed(0)
    weight_BGM = torch.rand(3, 2, 4) * (torch.rand(3, 2, 4) < 0.4)
    counted_BL = torch.rand(3, 6) < 0.6
    group_L = torch.arange(6) // 3
    row_N, position_N = counted_BL.nonzero(as_tuple=True)
    found = weighted_pairs(weight_BGM, group_L, row_N, position_N)
    expected, pairs = [], []
    for b in range(3):
        for k in range(4):
            at = [
                (b, k, i, weight_BGM[b, group_L[i], k].item())
                for i in counted_BL[b].nonzero().flatten().tolist()
                if weight_BGM[b, group_L[i], k] > 0
            ]
            expected += at
            pairs += [(b, k)] if at else []
    row_Q, component_Q = found.row_R[found.pair_Q], found.component_R[found.pair_Q]
    columns = (row_Q, component_Q, found.position_Q, found.weight_Q)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected
    assert list(zip(found.row_R.tolist(), found.component_R.tolist(), strict=True)) == pairs
    assert torch.equal(position_N[found.source_Q], found.position_Q)
    assert torch.equal(row_N[found.source_Q], row_Q)


def test_one_group_is_as_many_groups_of_equal_weight():
    """The short way of one latent per sequence; every sequence has a counted place."""
    torch.manual_seed(0)
    weight_BM = torch.rand(5, 4) * (torch.rand(5, 4) < 0.5)
    places = counted_places(torch.rand(5, 9) < 0.7)
    assert places.row_N.unique().numel() == 5
    ours = weighted_pairs(weight_BM[:, None], torch.zeros(9, dtype=torch.int64), *places)
    both_BGM = weight_BM[:, None].expand(-1, 3, -1)
    for a, b in zip(ours, weighted_pairs(both_BGM, torch.arange(9) // 3, *places), strict=True):
        assert torch.equal(a, b)


def test_distinct_pairs_of_revealed_positions():
    row_N, component_N = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([3, 1, 3, 1, 1])
    found = distinct_pairs(row_N, component_N, 4)
    assert found.row_R.tolist() == [0, 0, 2] and found.component_R.tolist() == [1, 3, 1]
    assert torch.equal(found.row_R[found.pair_N], row_N)
    assert torch.equal(found.component_R[found.pair_N], component_N)


def corrupted():
    torch.manual_seed(3)
    x_BL = torch.randint(3, 7, (3, 8))
    counted_BL = torch.rand(3, 8) < 0.7
    return torch.where(counted_BL, 2, x_BL), x_BL, counted_BL, torch.ones(3).double()


def gradients(structure, weights=None):
    """Gradient of -sum_b omega_b log Psi_b: by autograd, or from weights of gamma in two phases."""
    backbone = tiny_backbone(num_components=structure.components)
    torch.manual_seed(1)
    network = structure.network(16).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    xt_BL, x_BL, counted_BL, sigma_B = corrupted()
    omega_B = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    state = backbone.encode(xt_BL, sigma_B)
    p = network(state.h_BLD)
    logp_BML = component_scores(backbone, xt_BL, x_BL, counted_BL, sigma_B, FULL).logp_BML
    ell_BGM = structure.blocks.sums(logp_BML)
    if weights is None:
        loss = -(omega_B * structure.log_psi(p, ell_BGM)).sum()
    else:
        found = structure.posterior(p._make(q.detach() for q in p), ell_BGM.detach())
        places = counted_places(counted_BL)
        group_L = structure.blocks.group_of(8)
        weight_BGM = weights(found.gamma_BGM.contiguous())
        pairs = weighted_pairs(weight_BGM, group_L, *places)
        hidden_QD = backbone.branch_hidden(
            state, Places(pairs.pair_Q, pairs.position_Q), pairs.row_R, pairs.component_R
        )
        target_Q = x_BL[places][pairs.source_Q]
        coefficient_Q = -omega_B[pairs.row_R[pairs.pair_Q]] * pairs.weight_Q
        loss, _ = weighted_token_logprob(
            hidden_QD, backbone.head_weight, backbone.head_bias, target_Q, coefficient_Q, 2
        )
        loss = loss - (omega_B * expected_log_prior(p, found.counts)).sum()
    parameters = [
        q for module in (backbone, network) for q in module.parameters() if q.requires_grad
    ]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([
        (torch.zeros_like(q) if g is None else g).flatten()
        for q, g in zip(parameters, grads, strict=True)
    ])  # fmt: skip


every_structure = pytest.mark.parametrize(
    "structure",
    [Sequence(3), Tree(2, 2, 3), Chain(1, 3, 1), Chain(2, 2, 3)],
    ids=["sequence", "tree", "chain", "chains"],
)


@every_structure
def test_two_phases_give_the_gradient_of_autograd(structure):
    exact = gradients(structure)
    assert exact.abs().max() > 0.01
    torch.testing.assert_close(gradients(structure, lambda gamma: gamma), exact)


@every_structure
def test_the_gradient_is_linear_in_the_weights(structure):
    """So that drawn weights whose mean is gamma give it without bias."""
    first, second = (
        lambda gamma: drawn_weights(gamma, systematic(torch.full((3, 1), 0.3).double(), 2)),
        lambda gamma: drawn_weights(gamma, torch.full((3, 1, 1), 0.6).double()),
    )
    mean = (gradients(structure, first) + gradients(structure, second)) / 2
    both = gradients(structure, lambda gamma: (first(gamma) + second(gamma)) / 2)
    torch.testing.assert_close(both, mean)
    assert not torch.allclose(mean, gradients(structure, lambda gamma: gamma), rtol=1e-3)
