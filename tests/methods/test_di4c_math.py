"""Di4C's mathematics against arrays of the original code, and the laws it must obey."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lkf_plugin.corruption import LogLinearNoise, move_chance_from_sigma
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.methods import di4c_math
from tests.golden_arrays import load

CASES = ("t0.5", "t0.9", "t0.01_small", "t0.5_onelatent")


def of_file(case: str) -> tuple[dict[str, Tensor], di4c_math.Di4CTerms]:
    a = load(f"di4c/di4c_loss_{case}.npz")
    logp = [a[name].double() for name in ("teacher_logp_xt", "student_logp_xt", "student_logp_xs")]
    N, L = int(a["N"]), a["x0"].shape[1]
    drawn = a.get("x0_from_student", torch.zeros(1, N, L, dtype=torch.int64))
    terms = di4c_math.di4c_terms(
        a["x0"], a["t"][None], logp[0], logp[1][None], logp[2][None], drawn
    )
    return a, terms


@pytest.mark.parametrize("case", CASES)
def test_loss_and_its_terms_are_the_original(case):
    """In float64, from the float32 log-probabilities that the original had."""
    a, terms = of_file(case)
    wanted = {
        "distil": terms.distil,
        "data": terms.data,
        "data_cor": terms.data_correlation,
        "consis": terms.consistency,
        "consis_cor": terms.consistency_correlation,
        "loss": terms.loss[None],
    }
    for name, mine in wanted.items():
        assert mine.item() == pytest.approx(float(a[name]), abs=2e-6), name


def test_sequences_of_both_kinds_share_a_batch():
    """The original's batch is one sequence; ours gives each of several what it has alone."""
    alone = [of_file(case)[1] for case in CASES]
    files = [load(f"di4c/di4c_loss_{case}.npz") for case in CASES]
    drawn = [
        a.get("x0_from_student", torch.zeros(1, 4, 5, dtype=torch.int64)).squeeze(0) for a in files
    ]
    together = di4c_math.di4c_terms(
        torch.cat([a["x0"] for a in files]),
        torch.stack([a["t"] for a in files]),
        torch.cat([a["teacher_logp_xt"] for a in files]).double(),
        torch.stack([a["student_logp_xt"] for a in files]).double(),
        torch.stack([a["student_logp_xs"] for a in files]).double(),
        torch.stack(drawn),
    )
    for name in di4c_math.Di4CTerms._fields:
        wanted = torch.cat([getattr(terms, name) for terms in alone])
        torch.testing.assert_close(getattr(together, name), wanted, rtol=1e-12, atol=1e-12)


def test_embedding_of_the_latent_is_the_original():
    a = load("di4c/latent_embedding.npz")
    torch.testing.assert_close(
        di4c_math.latent_embedding(a["z"]), a["emb"], rtol=0, atol=1e-4
    )  # sines of up to 1000 in float32
    assert di4c_math.latent_embedding(torch.zeros(1))[0, :64].abs().max() == 0


def test_the_originals_discrete_times_are_shifted_by_one_step():
    """With T = 1024 its noise at t is that of t + 1 / T: time 1 is later than the last."""
    a = load("di4c/t_to_sigma_T1024.npz")
    sigma, _ = LogLinearNoise()(a["t"] + 1 / 1024)
    torch.testing.assert_close(sigma[:, None], a["sigma"], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        move_chance_from_sigma(sigma)[:, None], a["move_chance"], rtol=1e-5, atol=1e-6
    )


# --- laws ----------------------------------------------------------------------------------------

V, L, N = 3, 3, 4


def random_logp(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(*shape, L, V, generator=generator, dtype=torch.float64)
    return torch.log_softmax(logits, -1)


def test_one_latent_is_factorised_distillation():
    """Both correlations vanish, value and gradient; what is left is a KL of products."""
    t = torch.tensor([0.5, 0.001], dtype=torch.float64)
    teacher = random_logp(2, seed=0)
    student = random_logp(2, 1, seed=1).requires_grad_()
    later, x0 = random_logp(2, 1, seed=2), torch.tensor([[0, 2, 1], [1, 1, 0]])
    terms = di4c_math.di4c_terms(x0, t, teacher, student, later, x0[:, None])
    assert terms.data_correlation.abs().max() < 1e-14
    assert terms.consistency_correlation.abs().max() < 1e-14
    towards = di4c_math.divergence(teacher, student[:, 0])
    own = di4c_math.divergence(later[:, 0], student[:, 0])
    wanted = torch.stack((towards[0] + own[0], 2 * towards[1]))
    torch.testing.assert_close(terms.distil + terms.data + terms.consistency, wanted)
    (mine,) = torch.autograd.grad(terms.loss, student, retain_graph=True)
    (factorised,) = torch.autograd.grad(wanted.mean(), student)
    torch.testing.assert_close(mine, factorised, rtol=1e-12, atol=1e-14)


def test_latents_that_agree_are_one():
    t, x0 = torch.tensor([0.4], dtype=torch.float64), torch.tensor([[0, 2, 1]])
    teacher, one, later = (
        random_logp(1, seed=0),
        random_logp(1, 1, seed=1),
        random_logp(1, 1, seed=2),
    )
    drawn = torch.tensor([[[0, 1, 2]]])
    single = di4c_math.di4c_terms(x0, t, teacher, one, later, drawn)
    many = di4c_math.di4c_terms(
        x0, t, teacher, *(p.expand(1, N, L, V) for p in (one, later)), drawn.expand(1, N, L)
    )
    torch.testing.assert_close(many.loss, single.loss, rtol=1e-12, atol=1e-14)


def test_consistency_is_the_mixtures_kl_in_expectation():
    """Over all draws KL(later || student) - TC(later): the control variate costs a constant."""
    student, later = random_logp(1, N, seed=3), random_logp(1, N, seed=4)
    strings = all_strings(L, V)[None]
    log_later = di4c_math.mixture_log_prob(later, strings)[0]
    log_student = di4c_math.mixture_log_prob(student, strings)[0]
    p = log_later.exp()
    assert p.sum() == pytest.approx(1, abs=1e-12)
    marginal = di4c_math.mean_over_latents(later)
    own = di4c_math.divergence(marginal, di4c_math.mean_over_latents(student))
    gain = di4c_math.correlation_gain(student, strings)[0]
    expected = -(p * gain).sum() + own.item()
    kl = (p * (log_later - log_student)).sum()
    total_correlation = -(marginal.exp() * marginal).sum() + (p * log_later).sum()
    torch.testing.assert_close(expected, kl - total_correlation, rtol=1e-12, atol=1e-12)


def test_control_variate_lowers_the_variance_of_the_gradient():
    student = random_logp(1, N, seed=5).requires_grad_()
    later = (student.detach() + 0.1 * random_logp(1, N, seed=6)).log_softmax(-1)
    strings = all_strings(L, V)[None]
    p = di4c_math.mixture_log_prob(later, strings)[0].exp()

    def spread(values: Tensor) -> float:
        rows = torch.stack(
            [
                torch.autograd.grad(value, student, retain_graph=True)[0].flatten()
                for value in values
            ]
        )
        mean = (p[:, None] * rows).sum(0)
        return float((p[:, None] * (rows - mean).square()).sum())

    plain = spread(di4c_math.mixture_log_prob(student, strings)[0])
    controlled = spread(di4c_math.correlation_gain(student, strings)[0])
    assert controlled < 0.5 * plain


HIDDEN = 2  # of two bits that always agree; a state is 0, 1 or this


def agreeing(x_BL: Tensor) -> Tensor:
    """The perfect teacher: a bit is the other one where that is known, [B, 2, 2]."""
    laws = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    own = laws[x_BL]
    return torch.where((x_BL == HIDDEN)[..., None], laws[x_BL.flip(1)], own).clamp_min(1e-12).log()


def taught(latents: int) -> Tensor:
    """Law of both bits [2, 2] that a student of free laws has learned where both are hidden."""
    torch.manual_seed(0)
    B, base_steps, count = 64, 32, 400
    free = (0.3 * torch.randn(latents, 3, 3, 2, 2, dtype=torch.float64)).requires_grad_()

    def student(x_BNL: Tensor) -> Tensor:
        each_N = torch.arange(latents).expand(x_BNL.shape[:2])
        logp = free[each_N, x_BNL[..., 0], x_BNL[..., 1]].log_softmax(-1)
        return torch.where(
            (x_BNL == HIDDEN)[..., None], logp, agreeing(x_BNL.flatten(0, 1)).view_as(logp)
        )

    def drawn(logp: Tensor) -> Tensor:
        return torch.multinomial(logp.exp().flatten(0, -2), 1).view(logp.shape[:-1])

    optimizer = torch.optim.Adam([free], lr=0.1)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, count)
    for _ in range(count):
        t = 0.02 + 0.98 * torch.rand(B, dtype=torch.float64)
        x0 = torch.randint(2, (B, 1)).expand(B, 2)
        xt = torch.where(torch.rand(B, 2) < t[:, None], HIDDEN, x0)
        teacher = agreeing(xt)
        rows = xt[:, None].expand(-1, latents, -1)
        reveal = (torch.full_like(t, 1 / base_steps).minimum(t / 2) / t)[:, None, None]
        said = drawn(teacher[:, None].expand(-1, latents, -1, -1))
        xs = torch.where((rows == HIDDEN) & (torch.rand(rows.shape) < reveal), said, rows)
        with torch.no_grad():
            later = student(xs)
        terms = di4c_math.di4c_terms(x0, t, teacher, student(rows), later, drawn(later))
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        decay.step()
    law = free[:, HIDDEN, HIDDEN].detach().softmax(-1)
    return torch.einsum("ni,nj->ij", law[:, 0], law[:, 1]) / latents


def test_two_latents_reach_the_law_of_two_coupled_bits():
    """Both bits hidden, one step: a product of marginals is off by half, two latents by nothing.

    To a total variation of 0.03 after 400 steps of Adam.
    """
    coupled, factorised = torch.eye(2).double() / 2, torch.full((2, 2), 0.25).double()
    assert (taught(2) - coupled).abs().sum() / 2 < 0.03
    assert (taught(1) - factorised).abs().sum() / 2 < 0.03


def test_weight_of_the_data_grows_with_the_noise():
    weights = di4c_math.data_weight(torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(weights, torch.tensor([4.54e-6, 0.05, 0.1]), rtol=1e-3, atol=1e-8)
