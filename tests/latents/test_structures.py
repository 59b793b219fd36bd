"""Every structure against enumeration, and the special cases that tie them together."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin import kernel
from lkf_plugin.errors import UserError
from lkf_plugin.latents.chain import Chain, ChainPotentials
from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.latents.structure import (
    STRUCTURES,
    Structure,
    build_structure,
    expected_log_prior,
    with_sequence_latent,
)
from lkf_plugin.latents.tree import Tree, TreePotentials
from tests.latents.enumeration import (
    CASES,
    STRINGS,
    L,
    all_latents,
    log_joint,
    log_prior,
    random_components,
    random_potentials,
    row,
    token_scores,
)

every_structure = pytest.mark.parametrize("structure", CASES.values(), ids=CASES.keys())


def repeated(p, rows):
    """Potentials of one row, many times."""
    return p._make(part.expand(rows, *part.shape[1:]) for part in p)


def scores(structure, batch=2):
    """Potentials, component laws, and ell of each batch row under one string."""
    p, logp_BMLV = random_potentials(structure, batch), random_components(structure, batch)
    logp_BML = token_scores(logp_BMLV, STRINGS[[41]])[:, 0]
    return p, logp_BML, structure.blocks.sums(logp_BML)


@every_structure
def test_psi_sums_to_one_over_all_strings(structure):
    p, logp_BMLV = random_potentials(structure, 2), random_components(structure, 2)
    logp_BXML = token_scores(logp_BMLV, STRINGS)
    for b in range(2):
        ell_XGM = structure.blocks.sums(logp_BXML[b])
        many = p._make(part[b : b + 1].expand(len(STRINGS), *part.shape[1:]) for part in p)
        assert structure.log_psi(many, ell_XGM).exp().sum().item() == pytest.approx(1, abs=1e-12)


@every_structure
def test_log_psi_responsibilities_and_counts_are_those_of_all_latents(structure):
    p, logp_BML, ell_BGM = scores(structure)
    found = structure.posterior(p, ell_BGM)
    z_ZG = all_latents(structure)
    for b in range(2):
        joint_Z = log_joint(structure, row(p, b), logp_BML[b], z_ZG)
        assert found.log_psi_B[b].item() == pytest.approx(joint_Z.logsumexp(0).item(), abs=1e-12)
        one_hot_ZGM = torch.nn.functional.one_hot(z_ZG, structure.components).double()
        gamma_GM = torch.einsum("z,zgm->gm", torch.softmax(joint_Z, 0), one_hot_ZGM)
        torch.testing.assert_close(found.gamma_BGM[b], gamma_GM, atol=1e-12, rtol=0)


@every_structure
def test_posterior_is_the_gradient_of_the_brute_force_sum(structure):
    p, logp_BML, _ = scores(structure, 1)
    p = p._make(part.clone().requires_grad_() for part in p)
    logp_BML = logp_BML.requires_grad_()
    ell_BGM = structure.blocks.sums(logp_BML)
    ell_BGM.retain_grad()
    z_ZG = all_latents(structure)
    group_L = structure.blocks.group_of(L)
    log_pi_Z = log_prior(structure, p, z_ZG)[0]
    groups = torch.arange(ell_BGM.shape[1])
    ell_Z = ell_BGM[0][groups, z_ZG].sum(-1)
    torch.logsumexp(log_pi_Z + ell_Z, 0).backward()
    found = structure.posterior(p, ell_BGM.detach())
    torch.testing.assert_close(found.gamma_BGM, ell_BGM.grad, atol=1e-12, rtol=0)
    for count, part in zip(found.counts, p, strict=True):
        torch.testing.assert_close(count, part.grad, atol=1e-12, rtol=0)
    # so a position's weight is its group's
    torch.testing.assert_close(
        logp_BML.grad, found.gamma_BGM[:, group_L].transpose(1, 2), atol=1e-12, rtol=0
    )


@every_structure
def test_autograd_through_log_psi_gives_the_same(structure):
    p, _, ell_BGM = scores(structure)
    leaves = p._make(part.clone().requires_grad_() for part in p)
    ell_BGM.requires_grad_()
    weight_B = torch.tensor([0.3, 2.0], dtype=torch.float64)
    (weight_B * structure.log_psi(leaves, ell_BGM)).sum().backward()
    found = structure.posterior(p, ell_BGM.detach())
    torch.testing.assert_close(ell_BGM.grad, weight_B[:, None, None] * found.gamma_BGM)
    for count, leaf in zip(found.counts, leaves, strict=True):
        torch.testing.assert_close(leaf.grad, weight_B.view(-1, *[1] * (leaf.dim() - 1)) * count)
    # and so does the surrogate with counts fixed
    again = p._make(part.clone().requires_grad_() for part in p)
    (weight_B * expected_log_prior(again, found.counts)).sum().backward()
    for leaf, other in zip(again, leaves, strict=True):
        torch.testing.assert_close(leaf.grad, other.grad)


@every_structure
def test_condition_is_the_law_of_the_latents_given_the_string(structure):
    p, logp_BML, ell_BGM = scores(structure)
    given = structure.condition(p, ell_BGM)
    z_ZG = all_latents(structure)
    for b in range(2):
        joint_Z = log_joint(structure, row(p, b), logp_BML[b], z_ZG)
        log_post_Z = log_prior(structure, row(given, b), z_ZG)[0]
        torch.testing.assert_close(log_post_Z.exp(), torch.softmax(joint_Z, 0), atol=1e-12, rtol=0)


@every_structure
def test_marginals_entropy_and_capacity_are_those_of_all_latents(structure):
    p = random_potentials(structure, 2)
    z_ZG = all_latents(structure)
    prior_BZ = log_prior(structure, p, z_ZG).exp()
    one_hot_ZGM = torch.nn.functional.one_hot(z_ZG, structure.components).double()
    torch.testing.assert_close(
        structure.marginals(p).exp(), torch.einsum("bz,zgm->bgm", prior_BZ, one_hot_ZGM)
    )
    entropy_B = -torch.xlogy(prior_BZ, prior_BZ).sum(-1)
    torch.testing.assert_close(structure.entropy(p), entropy_B)
    assert entropy_B.max() <= structure.capacity(L)
    uniform = p._make(torch.log_softmax(torch.zeros_like(part), -1) for part in p)
    assert structure.entropy(uniform)[0].item() == pytest.approx(structure.capacity(L))
    assert structure.usage_entropy(uniform).item() == pytest.approx(structure.capacity(L))
    assert structure.usage_entropy(p).item() <= structure.capacity(L)
    # R falls by what is used, rises (at a positive weight) by what is undecided
    expected = -0.1 * structure.usage_entropy(p) + 0.3 * entropy_B.mean()
    torch.testing.assert_close(structure.regularizer(p, 0.1, 0.3), expected)


@every_structure
def test_marginal_denoiser_is_psis_marginal(structure):
    p, logp_BMLV = random_potentials(structure, 1), random_components(structure, 1)
    many = repeated(p, len(STRINGS))
    psi_X = structure.log_psi(
        many, structure.blocks.sums(token_scores(logp_BMLV, STRINGS)[0])
    ).exp()
    marginal_LV = structure.marginal_log_probs(p, logp_BMLV)[0].exp()
    for i in range(L):
        expected_V = torch.zeros(3, dtype=torch.float64).index_add_(0, STRINGS[:, i], psi_X)
        torch.testing.assert_close(marginal_LV[i], expected_V)
    token_1L = structure.marginal_token_log_probs(p, token_scores(logp_BMLV, STRINGS[[41]])[:, 0])
    torch.testing.assert_close(token_1L[0].exp(), marginal_LV[torch.arange(L), STRINGS[41]])


@every_structure
def test_a_given_sequence_latent_leaves_the_blocks_to_themselves(structure):
    p, _, ell_BGM = scores(structure)
    K, m = structure.sequence_components, structure.block_components
    held = [with_sequence_latent(p, torch.full((2,), k)) for k in range(K)]
    parts_BK = torch.stack([structure.log_psi(one, ell_BGM) for one in held], -1)
    whole_B = kernel.log_mixture(p.logw_BK, parts_BK)
    torch.testing.assert_close(whole_B, structure.log_psi(p, ell_BGM))
    for k, one in enumerate(held):
        u_BU = torch.rand(50, 1 + ell_BGM.shape[1], dtype=torch.float64)
        z_BG = structure.draw(repeated(row(one, 0), 50), u_BU)
        assert (z_BG // m == k).all()
        found = structure.posterior(one, ell_BGM)
        assert not found.gamma_BGM.isnan().any()
        torch.testing.assert_close(found.counts.logw_BK[:, k], torch.ones(2, dtype=torch.float64))
        assert torch.isfinite(structure.entropy(one)).all()


@every_structure
def test_captured_correlation_stays_below_the_latents_capacity(structure):
    """TC = sum_i I(z; X_i) - I(z; X), with I(z; X) <= H(z) <= capacity (paper, Prop. tc)."""
    p, logp_BMLV = random_potentials(structure, 1), 3.0 * random_components(structure, 1)
    logp_BMLV = torch.log_softmax(logp_BMLV, -1)
    logp_XML = token_scores(logp_BMLV, STRINGS)[0]
    z_ZG = all_latents(structure)
    joint_XZ = torch.stack([log_joint(structure, p, one, z_ZG) for one in logp_XML]).exp()
    px_X, pz_Z = joint_XZ.sum(1), joint_XZ.sum(0)

    def h(prob):
        return -torch.xlogy(prob, prob).sum().item()

    information = h(px_X) + h(pz_Z) - h(joint_XZ)
    marginals = parts = 0.0
    for i in range(L):
        value_XV = torch.nn.functional.one_hot(STRINGS[:, i], 3).double()
        cell_VZ = value_XV.T @ joint_XZ
        marginals += h(cell_VZ.sum(1))
        parts += h(cell_VZ.sum(1)) + h(pz_Z) - h(cell_VZ)
    total_correlation = marginals - h(px_X)
    assert total_correlation == pytest.approx(parts - information, abs=1e-10)
    assert 0 < information <= structure.entropy(p).item() + 1e-12 <= structure.capacity(L) + 1e-9
    # and log Psi is what the kernel's own enumeration gives
    psi_X = [structure.log_psi(p, structure.blocks.sums(one[None]))[0] for one in logp_XML]
    torch.testing.assert_close(torch.stack(psi_X).exp(), px_X, atol=1e-12, rtol=0)


@every_structure
@pytest.mark.parametrize("given", [False, True], ids=["prior", "posterior"])
def test_draws_follow_the_law(structure, given):
    p, logp_BML, ell_BGM = scores(structure, 1)
    n, groups = 50_000, ell_BGM.shape[1]
    generator = torch.Generator().manual_seed(3)
    u_BU = torch.rand(n, 1 + groups, dtype=torch.float64, generator=generator)
    law = structure.condition(p, ell_BGM) if given else p
    z_BG = structure.draw(repeated(law, n), u_BU)
    M = structure.components
    place_G = M ** torch.arange(groups)
    z_ZG = all_latents(structure)
    prob_Z = torch.zeros(M**groups, dtype=torch.float64)
    prob_Z[(z_ZG * place_G).sum(-1)] = log_prior(structure, law, z_ZG)[0].exp()
    share_Z = torch.bincount((z_BG * place_G).sum(-1), minlength=M**groups) / n
    error_Z = (prob_Z * (1 - prob_Z) / n).sqrt()
    assert ((share_Z - prob_Z).abs() <= 5 * error_Z + 1e-12).all()


# --- special cases -------------------------------------------------------------------------------


def test_sequence_is_the_kernel_bit_for_bit():
    torch.manual_seed(0)
    logw_BK = torch.log_softmax(torch.randn(5, 8), -1)
    logp_BML = -9 * torch.rand(5, 8, 32)
    structure, p = Sequence(8), SequencePotentials(logw_BK)
    ell_BGM = structure.blocks.sums(logp_BML)
    assert torch.equal(ell_BGM[:, 0], logp_BML.sum(-1))
    ell_BM = logp_BML.sum(-1)
    found = structure.posterior(p, ell_BGM)
    assert torch.equal(structure.log_psi(p, ell_BGM), kernel.log_mixture(logw_BK, ell_BM))
    assert torch.equal(found.log_psi_B, kernel.log_mixture(logw_BK, ell_BM))
    assert torch.equal(found.gamma_BGM[:, 0], kernel.responsibilities(logw_BK, ell_BM))
    assert torch.equal(found.counts.logw_BK, kernel.responsibilities(logw_BK, ell_BM))
    usage, each = kernel.batch_router_entropy(logw_BK), kernel.entropy(logw_BK).mean()
    assert torch.equal(structure.regularizer(p, 0.1, -0.1), -0.1 * usage + -0.1 * each)


@pytest.mark.parametrize("make", [Tree, Chain])
def test_one_block_component_is_sequence_bit_for_bit(make):
    torch.manual_seed(0)
    logw_BK = torch.log_softmax(torch.randn(5, 8), -1)
    logp_BML = -9 * torch.rand(5, 8, 32)
    structure, lkf = make(8, 1, 4), Sequence(8)
    zeros = torch.zeros(5, 1, 8, 1)
    p = (
        TreePotentials(logw_BK, zeros)
        if make is Tree
        else ChainPotentials(logw_BK, zeros[:, 0], torch.zeros(5, 8, 0, 1, 1))
    )
    ell_BGM = structure.blocks.sums(logp_BML)
    ours, theirs = (
        one.posterior(q, ell_BGM) for one, q in ((structure, p), (lkf, SequencePotentials(logw_BK)))
    )
    assert torch.equal(ell_BGM, lkf.blocks.sums(logp_BML))
    assert torch.equal(structure.log_psi(p, ell_BGM), theirs.log_psi_B)
    assert torch.equal(ours.log_psi_B, theirs.log_psi_B)
    assert torch.equal(ours.gamma_BGM, theirs.gamma_BGM)
    assert torch.equal(ours.counts.logw_BK, theirs.counts.logw_BK)
    u_BU = torch.rand(5, 2, dtype=torch.float64)
    assert torch.equal(structure.draw(p, u_BU), lkf.draw(SequencePotentials(logw_BK), u_BU))
    assert torch.equal(
        structure.regularizer(p, 0.1, -0.1), lkf.regularizer(SequencePotentials(logw_BK), 0.1, -0.1)
    )


@pytest.mark.parametrize("structure", [Sequence(1), Tree(1, 1, 2), Chain(1, 1, 1)])
def test_one_component_is_mdlms_sum_bit_for_bit(structure):
    torch.manual_seed(0)
    logp_B1L = -9 * torch.rand(5, 1, 32)
    p = structure.network(4)(torch.randn(5, 32, 4))
    ell_BGM = structure.blocks.sums(logp_B1L)
    assert torch.equal(structure.log_psi(p, ell_BGM), logp_B1L[:, 0].sum(-1))
    assert torch.equal(structure.responsibilities(p, ell_BGM), torch.ones(5, 1, 1))
    assert structure.capacity(32) == 0
    assert structure.regularizer(p, 0.1, -0.1) == 0


def test_chain_that_never_moves_is_sequence():
    g = torch.Generator().manual_seed(0)
    loga_BKm = torch.log_softmax(torch.randn(2, 1, 3, generator=g, dtype=torch.float64), -1)
    hold = torch.eye(3, dtype=torch.float64).log().expand(2, 1, 127, 3, 3)
    p = ChainPotentials(torch.zeros(2, 1, dtype=torch.float64), loga_BKm, hold)
    # states that lie a thousand nats apart: probabilities would underflow
    ell_BGM = -8 * torch.rand(2, 128, 3, generator=g, dtype=torch.float64)
    ell_BGM[..., 2] *= 3
    ours = Chain(1, 3, 1).posterior(p, ell_BGM)
    theirs = Sequence(3).posterior(SequencePotentials(loga_BKm[:, 0]), ell_BGM)
    torch.testing.assert_close(ours.log_psi_B, theirs.log_psi_B, rtol=1e-13, atol=0)
    torch.testing.assert_close(ours.gamma_BGM, theirs.gamma_BGM, rtol=0, atol=1e-12)
    given = Chain(1, 3, 1).condition(p, ell_BGM)
    assert not any(part.isnan().any() for part in given)


def test_a_tree_with_one_sequence_latent_is_independent_blocks():
    structure = Tree(1, 3, 2)
    p, _, ell_BGM = scores(structure)
    separate = [
        kernel.log_mixture(p.logv_BGKm[:, g, 0], ell_BGM[:, g]) for g in range(ell_BGM.shape[1])
    ]
    torch.testing.assert_close(structure.log_psi(p, ell_BGM), torch.stack(separate).sum(0))


@pytest.mark.parametrize("structure", [Tree(2, 3, 2), Chain(2, 3, 1)], ids=["tree", "chain"])
def test_relabelling_components_inside_a_level_changes_nothing(structure):
    p, _, ell_BGM = scores(structure)
    K, m = 2, 3
    k_order, j_order = torch.tensor([1, 0]), torch.tensor([2, 0, 1])
    parts = [p.logw_BK[:, k_order]]
    if isinstance(p, TreePotentials):
        parts.append(p.logv_BGKm[:, :, k_order][..., j_order])
    else:
        parts.append(p.loga_BKm[:, k_order][..., j_order])
        parts.append(p.logT_BKHmm[:, k_order][..., j_order, :][..., j_order])
    order_M = (k_order[:, None] * m + j_order).flatten()
    ours = structure.posterior(p._make(parts), ell_BGM[..., order_M])
    theirs = structure.posterior(p, ell_BGM)
    torch.testing.assert_close(ours.log_psi_B, theirs.log_psi_B)
    torch.testing.assert_close(ours.gamma_BGM, theirs.gamma_BGM[..., order_M])
    assert order_M.numel() == K * m


def test_float32_keeps_its_digits_over_long_chains():
    g = torch.Generator().manual_seed(0)
    wide = ChainPotentials(
        torch.zeros(4, 1, dtype=torch.float64),
        torch.log_softmax(torch.randn(4, 1, 8, generator=g, dtype=torch.float64), -1),
        torch.log_softmax(2 * torch.randn(4, 1, 255, 8, 8, generator=g, dtype=torch.float64), -1),
    )
    ell_BGM = -10 * torch.rand(4, 256, 8, generator=g, dtype=torch.float64)
    narrow = wide._make(part.float() for part in wide)
    exact, ours = (
        Chain(1, 8, 1).posterior(p, ell) for p, ell in ((wide, ell_BGM), (narrow, ell_BGM.float()))
    )
    assert ours.gamma_BGM.dtype == torch.float32
    torch.testing.assert_close(ours.gamma_BGM.double(), exact.gamma_BGM, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.log_psi_B.double(), exact.log_psi_B, rtol=1e-6, atol=0)


# --- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [*CASES.values(), Chain(2, 3, 1, sticky=3.0)])
def test_networks_start_uniform_and_normalised(structure):
    torch.manual_seed(0)
    network = structure.network(6)
    h_BLD = torch.randn(2, L, 6)
    p = network(h_BLD)
    for part, expected in zip(p, random_potentials(structure, 2), strict=True):
        assert part.shape == expected.shape and part.dtype == torch.float32
        torch.testing.assert_close(part.exp().sum(-1), torch.ones(part.shape[:-1]))
    if getattr(structure, "sticky", 0.0):
        stay = p.logT_BKHmm.exp().diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(stay, torch.full_like(stay, math.exp(3) / (math.exp(3) + 2)))
    else:
        entropy_B = structure.entropy(p)
        torch.testing.assert_close(entropy_B, torch.full((2,), structure.capacity(L)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = network(h_BLD.bfloat16())
    assert all(part.dtype == torch.float32 for part in again)


@pytest.mark.parametrize("structure", [Tree(2, 3, 2), Chain(2, 3, 1)], ids=["tree", "chain"])
def test_potentials_read_their_block_and_learn(structure):
    torch.manual_seed(0)
    network = structure.network(6)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    h_BLD = torch.randn(2, L, 6)
    p = network(h_BLD)
    ell_BGM = -5 * torch.rand(2, structure.blocks.count(L), structure.components)
    structure.log_psi(p, ell_BGM).sum().backward()
    assert all(q.grad is not None and q.grad.abs().sum() > 0 for q in network.parameters())
    # another last block moves what is read there; the mean over the sequence moves the rest a bit
    swapped = network(torch.cat([h_BLD[:, [1, 0]], h_BLD[:, 2:]], 1))
    last = p[-1][:, -1] if isinstance(p, TreePotentials) else p[-1][:, :, -1]
    other = swapped[-1][:, -1] if isinstance(p, TreePotentials) else swapped[-1][:, :, -1]
    torch.testing.assert_close(last, other)


def test_the_routers_names_are_those_of_lkf():
    lkf = {name: value.shape for name, value in Sequence(4).network(6).state_dict().items()}
    for structure in (Tree(4, 2, 2), Chain(4, 2, 1)):
        state = structure.network(6).state_dict()
        assert {name: state[name].shape for name in lkf} == lkf


# --- the seam ------------------------------------------------------------------------------------


def test_registry_knows_every_file_and_refuses_the_rest():
    def built(latent, **sizes):
        return build_structure({"latent": latent, "num_components": 2, **sizes})

    assert list(STRUCTURES) == ["chain", "sequence", "tree"]
    assert isinstance(built("tree", block_components=2, block_length=2), Tree)
    assert build_structure({"num_components": 8}).components == 8
    chain = built("chain", num_components=1, block_components=8, block_length=1, sticky=3.0)
    assert isinstance(chain, Chain) and chain.sticky == 3
    with pytest.raises(UserError, match="structure ring is unknown: take one of chain, seq"):
        built("ring")
    with pytest.raises(UserError, match="needs latent=tree or latent=chain"):
        built("sequence", block_components=2)
    with pytest.raises(UserError, match="block_length=0"):
        built("tree", block_components=2, block_length=0)
    with pytest.raises(UserError, match="num_components=0"):
        built("tree", num_components=0)


def test_a_structure_of_ones_own_is_one_class(tmp_path, monkeypatch):
    (tmp_path / "my_couples.py").write_text(
        "from lkf_plugin.latents.structure import STRUCTURES\n"
        "from lkf_plugin.latents.tree import Tree\n\n"
        "@STRUCTURES.add('couples')\n"
        "class Couples(Tree):\n"
        "    @classmethod\n"
        "    def from_settings(cls, model):\n"
        "        return cls(model['num_components'], 2, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(STRUCTURES, "_entries", dict(STRUCTURES._entries))
    own = build_structure({"latent": "my_couples.couples", "num_components": 3})
    assert own.components == 6 and own.blocks.count(L) == 2


@every_structure
def test_without_a_component_no_latent_takes_it_and_the_rest_keeps_its_proportions(structure):
    p, _, ell_BGM = scores(structure)
    z_ZG = all_latents(structure)
    for c in range(structure.components):
        law_BZ = [log_prior(structure, row(p, b), z_ZG)[0] for b in range(2)]
        found = structure.without(p, c)
        free_Z = ~(z_ZG == c).any(-1)
        for b in range(2):
            left_Z = log_prior(structure, row(found, b), z_ZG)[0]
            assert (left_Z[~free_Z] == -torch.inf).all()
            assert left_Z.exp().sum().item() == pytest.approx(1, abs=1e-12)
            gone = Structure.without(structure, p, c)
            given_Z = law_BZ[b][free_Z].log_softmax(0)
            torch.testing.assert_close(log_prior(structure, row(gone, b), z_ZG)[0, free_Z], given_Z)
            # other latents of the sequence are as likely as before
            k = c // structure.block_components
            others_Z = (z_ZG // structure.block_components != k).all(-1)
            if structure.block_components > 1 and others_Z.any():
                torch.testing.assert_close(left_Z[others_Z], law_BZ[b][others_Z])
        assert (structure.posterior(found, ell_BGM).gamma_BGM[..., c] == 0).all()
