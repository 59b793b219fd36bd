from __future__ import annotations

import itertools
import math

import pytest
import torch

from lkf_plugin.corpora.few_step import step_times
from lkf_plugin.corpora.parity import LOG2, Parity
from lkf_plugin.errors import UserError

PAPER = Parity()


def even_strings(d: int) -> list[tuple[int, ...]]:
    return [x for x in itertools.product((0, 1), repeat=d) if sum(x) % 2 == 0]


def test_samples() -> None:
    before = torch.get_rng_state()
    x = PAPER.sample(2000, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    assert x.shape == (2000, 16) and x.dtype == torch.long
    assert torch.equal(x, PAPER.sample(2000, seed=5))
    assert PAPER.in_support(x).all()
    assert (x.double().mean(0) - 0.5).abs().max() < 0.06
    assert PAPER.entropy() == pytest.approx(15 * LOG2)
    assert PAPER.total_correlation() == pytest.approx(16 * LOG2 - PAPER.entropy())


def test_support_and_recall() -> None:
    corpus = Parity(3)
    x = torch.tensor([[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0], [2, 0, 0], [1, 1, 2]])
    assert corpus.in_support(x).tolist() == [True, True, True, False, False, False]
    assert corpus.recall(x) == 0.5
    assert Parity(3).recall(Parity(3).sample(200, 0)) == 1.0


@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize(("t", "s"), [(0.0, 0.4), (0.3, 0.8), (0.2, 1.0)])
def test_transition_by_enumeration(brute_transition, d: int, t: float, s: float) -> None:
    corpus = Parity(d)
    states = torch.tensor(list(itertools.product(range(3), repeat=d)))
    table = brute_transition(even_strings(d), 2, t, s)
    entropy = factorized = correlation = 0.0
    for at_t, row in table.items():
        xt = torch.tensor([at_t]).expand_as(states)
        got = corpus.log_transition(states, xt, t, s).exp()
        truth = torch.tensor([row.get(tuple(x.tolist()), 0.0) for x in states], dtype=torch.float64)
        torch.testing.assert_close(got, truth, atol=1e-12, rtol=0)
        # The M = 1 optimum is the product of the marginals of the enumerated transition.
        product = torch.ones(len(states)).double()
        for i in range(d):
            marginal = torch.zeros(3).double().index_add_(0, states[:, i], truth)
            product *= marginal[states[:, i]]
        got = corpus.log_reference(states, xt, t, s, 1).exp()
        torch.testing.assert_close(got, product, atol=1e-12, rtol=0)
        n = at_t.count(2)
        ways = 2 ** min(d - n, d - 1)  # equally likely visible strings
        chance = (1 - t) ** n * t ** (d - n) / ways
        entropy -= chance * torch.xlogy(truth, truth).sum().item()
        loss = -chance * torch.xlogy(truth, product).sum().item()
        factorized += loss
        correlation += loss + chance * torch.xlogy(truth, truth).sum().item()
    assert corpus.cross_entropy(t, s, 2 ** (d - 1)).item() == pytest.approx(entropy, abs=1e-12)
    assert corpus.cross_entropy(t, s, 1).item() == pytest.approx(factorized, abs=1e-12)
    captured = corpus.captured_correlation(t, s, 2 ** (d - 1)).item()
    assert captured == pytest.approx(correlation, abs=1e-12)


@pytest.mark.parametrize("components", [2, 3, 4, 8])
def test_solved_states_are_mixtures_of_that_rank(components: int) -> None:
    """Write the mixture out: one component a completion, on a state with ``solved`` masked bits."""
    corpus, p = Parity(4), 0.3
    n = corpus.solved(components)
    strings = even_strings(n)
    assert len(strings) <= components < 2 * len(strings)
    tables = torch.zeros(len(strings), n, 3).double()
    tables[..., 2] = 1 - p
    tables.scatter_(2, torch.tensor(strings)[..., None], p)
    states = torch.tensor(list(itertools.product(range(3), repeat=n)))
    by_component = tables[:, torch.arange(n), states].prod(-1) / len(strings)
    mixture = by_component.sum(0)
    xt = torch.tensor([[2] * n + [0] * (4 - n)]).expand(len(states), 4)
    xs = torch.cat([states, xt[:, n:]], dim=1)
    got = corpus.log_reference(xs, xt, 0.0, p, components).exp()
    torch.testing.assert_close(got, mixture, atol=1e-14, rtol=0)
    information = (
        torch.xlogy(by_component, by_component / mixture.clamp_min(1e-300) * len(strings))
        .sum()
        .item()
    )
    assert information == pytest.approx((n * p - p**n) * LOG2, abs=1e-12)
    if n == 4:
        assert corpus.information(0.0, p, 8).item() == pytest.approx(information, abs=1e-12)


def test_optimal_losses(average_over_times) -> None:
    for cap, expected in {1.0: 6.752, 0.95: 7.094, 0.9: 7.439}.items():
        assert PAPER.nll(1, cap) == pytest.approx(expected, abs=6e-4)
    assert PAPER.nll(2**15) == pytest.approx(7.012, abs=6e-4)
    gains = [PAPER.nll(1) - PAPER.nll(m) for m in (2, 4, 8, 16, 2**15)]
    assert gains == pytest.approx([0.0136, 0.0242, 0.0328, 0.0399, 0.0824], abs=6e-5)
    no_parity = 16 * 0.525 * (1 + LOG2) / 2  # not even the last bit is known to follow
    assert no_parity == pytest.approx(7.111, abs=6e-4)
    assert no_parity - PAPER.nll(1) == pytest.approx(0.017, abs=6e-4)

    def whole(t):
        return torch.ones_like(t)

    for m in (1, 4, 2**15):
        average = average_over_times(
            lambda t, s, m=m: PAPER.cross_entropy(t, s, m), lambda t: t, whole, cap=0.95
        )
        assert average == pytest.approx(PAPER.nll(m), abs=1e-4)

    def loss(t, s):
        return PAPER.cross_entropy(t, s, 1)

    conventions = {
        7.117: average_over_times(loss, lambda t: t + 0.02, whole, cap=0.98),
        5.504: average_over_times(loss, whole, whole, cap=1 - 1e-12),
        7.930: average_over_times(loss, torch.zeros_like, lambda s: s, outer="s", cap=1 - 1e-9),
        9.026: average_over_times(
            lambda t, s: 2 * s * loss(t, s), torch.zeros_like, lambda s: s, outer="s"
        ),
        7.241: average_over_times(
            lambda t, s: 0.05 / (1 - t) * loss(t, t + 0.05) + (1 - 0.05 / (1 - t)) * loss(t, s),
            lambda t: t + 0.05,
            whole,
            cap=0.95,
        ),
    }
    for expected, got in conventions.items():
        assert got == pytest.approx(expected, abs=6e-4)


def test_the_latent_is_silent_at_the_start() -> None:
    for m in (1, 2, 16, 2**14):
        assert PAPER.information(0.0, 1.0, m).item() == 0.0
        assert PAPER.captured_correlation(0.0, 1.0, m).item() == 0.0
    assert PAPER.captured_correlation(0.0, 1.0, 2**15).item() == pytest.approx(LOG2)
    assert PAPER.information(0.9, 1.0, 16).item() > 0.2


@pytest.mark.parametrize(
    ("d", "components", "divergence", "distance"),
    [
        (2, 1, LOG2, 0.5),
        (2, 2, 0.0, 0.0),
        (3, 1, LOG2, 0.5),
        (3, 2, 0.576, 0.402),
        (3, 4, 0.0, 0.0),
        (4, 2, 0.654, 0.457),
        (4, 4, 0.520, 0.375),
        (4, 8, 0.0, 0.0),
        (5, 4, 0.663, 0.475),
        (5, 8, 0.433, 0.3125),
        (5, 16, 0.0, 0.0),
    ],
)
def test_full_reveal_by_em(fit_mixture, d, components, divergence, distance) -> None:
    strings = torch.tensor(even_strings(d))
    prob = torch.full((len(strings),), 1 / len(strings), dtype=torch.float64)
    loss, weights, tables = fit_mixture(strings, prob, components, restarts=200, rounds=150)
    assert loss - Parity(d).entropy() == pytest.approx(divergence, abs=6e-4)
    everything = torch.tensor(list(itertools.product((0, 1), repeat=d)))
    mixture = weights @ tables[:, torch.arange(d), everything].prod(-1)
    truth = (everything.sum(-1) % 2 == 0) / len(strings)
    gap = 0.5 * (mixture - truth).abs().sum().item()
    assert gap == pytest.approx(distance, abs=1e-3)
    assert gap >= (1 - components / 2 ** (d - 1)) / 3 - 1e-9  # paper, Theorem "parity"


@pytest.mark.parametrize(("d", "components", "steps"), [(6, 1, 3), (6, 4, 2), (16, 1, 8)])
def test_few_step_validity_by_simulation(d: int, components: int, steps: int) -> None:
    corpus, rows = Parity(d), 40_000
    generator = torch.Generator().manual_seed(2)
    x = torch.full((rows, d), 2)
    times = step_times(steps)
    for low, high in zip(times, times[1:], strict=False):
        masked = x == 2
        reveal = masked & (torch.rand(x.shape, generator=generator) < (high - low) / (1 - low))
        bits = torch.randint(2, x.shape, generator=generator)
        odd = (torch.where(reveal, bits, torch.where(masked, 0, x)).sum(-1) % 2).bool()
        # A state that the reference solves draws one of its completions and shows a part of it:
        # when all is shown, the first bit shown repairs the parity.
        solves = (reveal == masked).all(-1) & (masked.sum(-1) <= corpus.solved(components))
        flip = reveal & (reveal.cumsum(-1) == 1) & (odd & solves)[:, None]
        x = torch.where(reveal, bits ^ flip.long(), x)
    expected = corpus.few_step_validity(steps, components)
    error = math.sqrt(expected * (1 - expected) / rows)
    assert corpus.in_support(x).double().mean().item() == pytest.approx(expected, abs=4 * error)


def test_few_step_validity_limits() -> None:
    assert PAPER.few_step_validity(1) == pytest.approx(0.5)
    assert Parity(5).few_step_validity(1, 16) == pytest.approx(1.0)
    assert Parity(5).few_step_validity(7, 16) == pytest.approx(1.0)
    assert PAPER.few_step_validity(10_000) == pytest.approx(1.0, abs=1e-2)


def test_user_mistakes() -> None:
    with pytest.raises(UserError):
        Parity(1)
    with pytest.raises(UserError):
        PAPER.solved(0)
    with pytest.raises(UserError):
        PAPER.nll(1, t_max=1.5)
    odd = torch.tensor([[1, 0, 0]])
    with pytest.raises(UserError):
        Parity(3).log_transition(odd, odd, 0.0, 0.5)
