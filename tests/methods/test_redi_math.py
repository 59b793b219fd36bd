"""ReDi's mathematics against arrays of the original code, and the laws it must obey."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.host.ancestral import sample_categorical
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.information.sample_tc import plug_in_total_correlation
from lkf_plugin.methods import redi_math
from lkf_plugin.methods.duo_math import nelbo_integrand
from lkf_plugin.methods.duo_sampler import run_chain, run_chains
from tests.golden_arrays import DECIDED, ClosestRace, load
from tests.methods.exact_couplings import conditional_total_correlation, rectify
from tests.methods.tables import duo_table

# Steps of a coupling -> conditional TC of two agreeing bits after 0 to 5 rectifications, nats.
TWO_BITS = {
    2: (0.69314718, 0.03414866, 0.00867871, 0.00404735, 0.00237199, 0.00155483),
    4: (0.69314718, 0.15118126, 0.06721801, 0.03939237, 0.0268017, 0.01988629),
    16: (0.69314718, 0.39718372, 0.26641851, 0.19990246, 0.16284925, 0.1397669),
}


def close(actual: Tensor, wanted: Tensor, rtol: float = 2e-5) -> None:
    torch.testing.assert_close(actual, wanted.to(actual), rtol=rtol, atol=rtol)


def integrand_of(a: dict[str, Tensor]) -> Tensor:
    sigma_B, dsigma_B = LogLinearNoise().double()(a["t"].double())
    alpha = torch.exp(-sigma_B)[:, None].expand(a["xt"].shape)
    dalpha = -dsigma_B[:, None] * alpha
    logp = duo_table(a["W"].double())(a["xt"], sigma_B)
    return nelbo_integrand(logp, a["xt"], a["x0"], alpha, dalpha)


# --- the original's arrays -----------------------------------------------------------------------


def test_bridge_and_its_bound_are_the_original():
    a = load("redi/rectification_elbo.npz")
    xt = redi_math.bridge(a["x0"], a["xT"], a["alpha"][:, 0], a["u"])
    assert torch.equal(xt, a["xt"])
    close(integrand_of(a), a["nll_per_token"])


def test_simple_loss_is_the_original():
    a = load("redi/rectification_simple.npz")
    assert torch.equal(redi_math.bridge(a["x0"], a["xT"], a["alpha"][:, 0], a["u"]), a["xt"])
    logp = duo_table(a["W"])(a["xt"], a["sigma"][:, 0])
    close(redi_math.simple_loss(logp, a["x0"]), a["nll_per_token"])


def test_one_step_mode_starts_from_the_noise_itself():
    a = load("redi/rectification_onestep.npz")
    assert torch.equal(a["xt"], a["xT"])
    nothing_kept = torch.full_like(a["alpha"][:, 0], -1.0)
    assert torch.equal(redi_math.bridge(a["x0"], a["xT"], nothing_kept, a["u"]), a["xt"])


@pytest.mark.parametrize("times", ("all", "start"))
def test_a_perturbed_bridge_and_its_bound_are_the_original(times):
    a = load("redi/rectification_given_t.npz")
    if times == "start":
        fixed = load("redi/rectification_given_t_fixed.npz")
        torch.manual_seed(int(fixed["note_seed"]))
        a = {**a, **fixed, "u": torch.rand(a["xt"].shape)}
        assert torch.equal(a["t"], 1 - a["given_t"])
    assert (a["t"] <= 1 - a["given_t"]).all()
    alpha = torch.exp(-LogLinearNoise()(a["t"])[0])
    xt = redi_math.bridge(a["x0"], a["xT"], alpha, a["u"], a["given_t"])
    assert torch.equal(xt, a["xt"])
    # their float32 loses digits at time 1, where the signal is 0.001
    close(integrand_of(a), a["nll_per_token"], 1e-3 if times == "start" else 2e-5)


@pytest.mark.parametrize("num_steps", (1, 4, 16))
def test_coupled_texts_are_the_original(num_steps, monkeypatch):
    """A coupling is DUO's chain from a noise that is kept."""
    a = load("redi/coupling_generation.npz")
    race = ClosestRace(monkeypatch)
    torch.manual_seed(400 + num_steps)
    x = run_chain(
        duo_table(a["W"]), LogLinearNoise(), a["xT"], num_steps, 1e-5, "greedy", sample_categorical
    )
    assert torch.equal(x, a[f"steps_{num_steps}"])
    assert race.margin > DECIDED


def test_draws_at_a_temperature_are_the_original():
    a = load("redi/sample_categorical_T0.8.npz")
    race = (a["probs"].log() / 0.8).exp() / (1e-10 - (a["uniform"] + 1e-10).log())
    assert torch.equal(race.argmax(-1), a["sample"])


def test_total_correlation_of_samples_is_the_image_codes_and_not_the_text_codes():
    a = load("redi/tc_estimator.npz")
    for group in (0, 1):
        bits = plug_in_total_correlation(a["x1"][a["key"] == group]) / math.log(2)
        assert bits == pytest.approx(float(a[f"image_group{group}"][0]), abs=1e-12)
    true = sum(float(a[f"image_group{group}"][0]) for group in (0, 1)) / 2
    told, joint, marginal = a["text_tc_joint_marginal"].tolist()
    assert joint == 2.0  # log2 of four samples, whatever they are
    assert told == marginal - joint == -1.0 != true


# --- laws ----------------------------------------------------------------------------------------


def test_chains_from_times_of_their_own_are_those_of_each_alone():
    """The network is asked for what is on its way alone; a chain from noise has all its steps."""
    a = load("redi/coupling_generation.npz")
    table, asked = duo_table(a["W"]), []

    def watched(x: Tensor, sigma: Tensor) -> Tensor:
        asked.append(len(x))
        return table(x, sigma)

    def made(x: Tensor, clean: Tensor) -> Tensor:
        steps = redi_math.chain_steps(clean, 8)
        ends = (1e-5, "greedy", lambda weights: weights.argmax(-1))
        return run_chains(watched, LogLinearNoise(), x, 1 - clean, steps, *ends)

    x, clean = a["xT"][:4], torch.tensor([0.0, 0.3, 0.5, 0.95])
    assert redi_math.chain_steps(clean, 8).tolist() == [8, 5, 4, 1]
    together = made(x, clean)
    assert asked == [4, 3, 3, 3, 2, 1, 1, 1, 4]
    alone = [made(x[b : b + 1], clean[b : b + 1]) for b in range(4)]
    assert torch.equal(together, torch.cat(alone))


def test_a_perturbed_start_keeps_the_share_of_the_text():
    torch.manual_seed(0)
    text = torch.zeros(3, 40_000, dtype=torch.int64)
    clean = torch.tensor([0.0, 0.25, 0.9])
    start = redi_math.perturb(text, text + 1, torch.rand(text.shape), clean)
    torch.testing.assert_close((start == text).float().mean(1), clean, rtol=0, atol=0.01)
    # and its bridge at the signal s has the share (s - g) / (1 - g) of the rest from the other end
    alpha = torch.full((3,), 0.95)
    xt = redi_math.bridge(text + 2, start, alpha, torch.rand(text.shape), clean)
    wanted = (alpha - clean) / (1 - clean)
    torch.testing.assert_close((xt == 2).float().mean(1), wanted, rtol=0, atol=0.01)


def uniform(count: int) -> Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def rounds(coupling: Tensor, strings: Tensor, num_steps: int, count: int) -> list[Tensor]:
    couplings = [coupling]
    for _ in range(count):
        last = couplings[-1]
        couplings.append(rectify(last, uniform(len(strings)), strings, num_steps))
    return couplings


def by_loops(coupling: Tensor, num_steps: int) -> Tensor:
    """The next coupling of two bits, pair by pair and state by state, as the definition says."""
    strings = all_strings(2, 2).tolist()
    chain = torch.eye(4, dtype=torch.float64)
    for step in range(num_steps):
        alpha = step / num_steps
        jump = (1 / num_steps) / (1 - alpha)
        kernel = torch.zeros(4, 4, dtype=torch.float64)
        for z, now in enumerate(strings):
            weight = {}
            for y, noise in enumerate(strings):
                for x, text in enumerate(strings):
                    chance = coupling[y, x].item() / 4
                    for i in range(2):
                        chance *= alpha * (text[i] == now[i]) + (1 - alpha) * (noise[i] == now[i])
                    weight[y, x] = chance
            total = sum(weight.values()) or 1.0
            for later, after in enumerate(strings):
                chance = 1.0
                for i in range(2):
                    of_value = [w for (_, x), w in weight.items() if strings[x][i] == after[i]]
                    chance *= jump * sum(of_value) / total + (1 - jump) * (after[i] == now[i])
                kernel[z, later] = chance
        chain = chain @ kernel
    return chain


@pytest.mark.parametrize("num_steps", TWO_BITS)
def test_rectification_of_two_bits_has_the_exact_values(num_steps):
    """Conditional TC falls with every round, and so does the share of texts that still agree."""
    strings = all_strings(2, 2)
    start = torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64).expand(4, 4)
    couplings = rounds(start, strings, num_steps, 5)
    plain = by_loops(by_loops(start, num_steps), num_steps)
    torch.testing.assert_close(couplings[2], plain, rtol=1e-12, atol=1e-14)
    correlations = torch.stack(
        [conditional_total_correlation(one, uniform(4), strings) for one in couplings]
    )
    assert correlations.tolist() == pytest.approx(TWO_BITS[num_steps], abs=1e-8)
    assert (correlations.diff() < 0).all()
    agree = [float((uniform(4) @ one)[[0, 3]].sum()) for one in couplings]
    assert all(later < earlier for earlier, later in zip(agree, agree[1:], strict=False))
    assert agree[-1] == pytest.approx({2: 0.566, 4: 0.681, 16: 0.886}[num_steps], abs=1e-3)


def random_target(strings: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(len(strings), generator=generator, dtype=torch.float64)
    return torch.softmax(logits, 0).expand(len(strings), -1)


def test_rectification_lowers_the_correlation_of_three_tokens_too():
    strings = all_strings(3, 3)
    couplings = rounds(random_target(strings), strings, 8, 2)
    values = [float(conditional_total_correlation(one, uniform(27), strings)) for one in couplings]
    assert values[0] > values[1] > values[2] > 0
    for one in couplings:
        torch.testing.assert_close(one.sum(1), torch.ones(27, dtype=torch.float64))


def test_one_step_keeps_the_marginals_and_drops_all_correlation():
    """The coupling of a one-step model is the product of its source's conditional marginals."""
    strings = all_strings(3, 3)
    target = random_target(strings)
    once = rectify(target, uniform(27), strings, 1)
    onehot = torch.nn.functional.one_hot(strings, 3).double()
    first, last = (torch.einsum("yx,xlv->ylv", one, onehot) for one in (target, once))
    torch.testing.assert_close(first, last, rtol=1e-12, atol=1e-14)
    correlation = conditional_total_correlation(once, uniform(27), strings)
    assert correlation == pytest.approx(0, abs=1e-14)


def test_a_factorised_coupling_has_no_correlation_and_stays():
    strings = all_strings(2, 2)
    p = torch.tensor([0.3, 0.7], dtype=torch.float64)
    product = (p[strings[:, 0]] * p[strings[:, 1]]).expand(4, 4)
    correlation = conditional_total_correlation(product, uniform(4), strings)
    assert correlation == pytest.approx(0, abs=1e-15)
    torch.testing.assert_close(
        uniform(4) @ rectify(product, uniform(4), strings, 3), uniform(4) @ product
    )
