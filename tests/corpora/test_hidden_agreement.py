from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch

from lkf_plugin.corpora.few_step import step_times
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.errors import UserError

PAPER = HiddenAgreement()
RANKS = (1, 2, 4, 8, 16)


def support(corpus: HiddenAgreement) -> list[tuple[int, ...]]:
    return [(v,) * corpus.length for v in range(corpus.values)]


def all_states(corpus: HiddenAgreement) -> torch.Tensor:
    states = itertools.product(range(corpus.values + 1), repeat=corpus.length)
    return torch.tensor(list(states))


def mixture_at_all_masked(
    corpus: HiddenAgreement, groups: tuple[int, ...], p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The optimum written out: weights (M,) and tables (M, V+1), the same at every position."""
    tables, start = torch.zeros(len(groups), corpus.values + 1).double(), 0
    for k, g in enumerate(groups):
        tables[k, start : start + g] = p / g
        tables[k, -1] = 1 - p
        start += g
    return torch.tensor(groups).double() / corpus.values, tables


def test_samples() -> None:
    before = torch.get_rng_state()
    x = PAPER.sample(4000, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert x.shape == (4000, 8) and x.dtype == torch.long
    assert torch.equal(x, PAPER.sample(4000, seed=3))
    assert not torch.equal(x, PAPER.sample(4000, seed=4))
    assert PAPER.in_support(x).all() and PAPER.recall(x) == 1.0
    assert PAPER.value_entropy(x) == pytest.approx(math.log(16), abs=0.01)
    assert PAPER.entropy() / math.log(2) == pytest.approx(4)
    assert PAPER.total_correlation() / math.log(2) == pytest.approx(28)


def test_support_recall_and_value_entropy_ignore_invalid_rows() -> None:
    corpus = HiddenAgreement(values=4, length=3)
    x = torch.tensor([[1, 1, 1], [1, 1, 1], [2, 2, 2], [3, 3, 0], [4, 4, 4], [0, 0, 4]])
    assert corpus.in_support(x).tolist() == [True, True, True, False, False, False]
    assert corpus.recall(x) == 0.5
    assert corpus.value_entropy(x) == pytest.approx(
        -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    )
    assert corpus.recall(x[3:]) == 0.0 and corpus.value_entropy(x[3:]) == 0.0


@pytest.mark.parametrize(("t", "s"), [(0.0, 0.4), (0.3, 0.8), (0.2, 1.0)])
def test_transition_by_enumeration(brute_transition, t: float, s: float) -> None:
    corpus = HiddenAgreement(values=3, length=3)
    states = all_states(corpus)
    table = brute_transition(support(corpus), corpus.mask_id, t, s)
    entropy, weights = 0.0, 0.0
    for at_t, row in table.items():
        xt = torch.tensor([at_t]).expand_as(states)
        got = corpus.log_transition(states, xt, t, s).exp()
        expected = torch.tensor(
            [row.get(tuple(x.tolist()), 0.0) for x in states], dtype=torch.float64
        )
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
        n = at_t.count(corpus.mask_id)
        chance = (1 - t) ** n * t ** (3 - n) / (3 if n < 3 else 1)
        weights += chance
        entropy -= chance * sum(q * math.log(q) for q in row.values())
    assert weights == pytest.approx(1.0)
    assert corpus.cross_entropy(t, s, 3).item() == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("groups", [(4,), (2, 2), (2, 1, 1), (3, 1), (1, 1, 1, 1)])
def test_reference_is_the_mixture_it_stands_for(groups: tuple[int, ...]) -> None:
    corpus, p = HiddenAgreement(values=4, length=3), 0.35
    weights, tables = mixture_at_all_masked(corpus, groups, p)
    states = all_states(corpus)
    by_component = weights[:, None] * tables[:, states].prod(-1)
    xt = torch.full_like(states, corpus.mask_id)
    got = corpus.log_reference(states, xt, 0.0, p, groups).exp()
    torch.testing.assert_close(got, by_component.sum(0), atol=1e-14, rtol=0)

    # Loss, I and TC at the all-masked start, from the table alone.
    truth = corpus.log_transition(states, xt, 0.0, p).exp()
    loss = -(truth[truth > 0] * got[truth > 0].log()).sum().item()
    assert corpus.cross_entropy(0.0, p, groups).item() == pytest.approx(loss, abs=1e-12)
    posterior = by_component / got.clamp_min(1e-300)
    information = torch.xlogy(by_component, posterior / weights[:, None]).sum().item()
    assert corpus.information(0.0, p, groups).item() == pytest.approx(information, abs=1e-12)
    marginal = weights @ tables
    separate = -corpus.length * torch.xlogy(marginal, marginal).sum().item()
    correlation = separate + torch.xlogy(got, got).sum().item()
    assert corpus.captured_correlation(0.0, p, groups).item() == pytest.approx(
        correlation, abs=1e-12
    )


@pytest.mark.parametrize("components", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_hard_partition_is_the_optimum_that_em_finds(fit_mixture, components, p) -> None:
    corpus = HiddenAgreement(values=4, length=4)
    states = all_states(corpus)
    xt = torch.full_like(states, corpus.mask_id)
    truth = corpus.log_transition(states, xt, 0.0, p).exp()
    kept = truth > 0
    loss, _, _ = fit_mixture(states[kept], truth[kept], components)
    expected = corpus.cross_entropy(0.0, p, components).item()
    assert loss == pytest.approx(expected, abs=5e-5)
    assert loss >= expected - 1e-9


def test_optimal_losses(average_over_times) -> None:
    """Table "conventions": the losses for M = 1, 2, 4, 8, 16, to the digits given."""

    def row(*args, **kwargs) -> list[float]:
        return [
            average_over_times(partial(PAPER.cross_entropy, components=m), *args, **kwargs)
            for m in RANKS
        ]

    def whole(t):
        return torch.ones_like(t)

    def itself(t):
        return t

    def close(got, expected):
        assert got == pytest.approx(expected, abs=6e-4)

    for cap, expected in {
        1.0: [3.232, 2.993, 2.753, 2.513, 2.274],
        0.95: [3.397, 3.145, 2.893, 2.640, 2.388],
        0.9: [3.569, 3.303, 3.037, 2.770, 2.504],
    }.items():
        closed = [PAPER.nll(m, cap) for m in RANKS]
        close(closed, expected)
        assert row(itself, whole, cap=min(cap, 1 - 1e-12)) == pytest.approx(closed, abs=1e-4)
    close(row(lambda t: t + 0.02, whole, cap=0.98), [3.387, 3.137, 2.887, 2.637, 2.387])
    close(row(itself, whole, cap=1 - 1e-12, nodes=120)[:1], [3.232])
    # (t, 1): no Bernoulli term is left.
    close(row(whole, whole, cap=1 - 1e-12), [2.465, 1.925, 1.386, 0.847, 0.308])
    zero = torch.zeros_like
    close(row(zero, itself, outer="s", cap=1 - 1e-9), [4.481, 4.146, 3.812, 3.478, 3.143])

    def sorted_pair(m: int) -> float:
        return average_over_times(
            lambda t, s: 2 * s * PAPER.cross_entropy(t, s, m), zero, itself, outer="s"
        )

    close([sorted_pair(m) for m in RANKS], [4.885, 4.453, 4.022, 3.591, 3.160])
    # s at least .05 above t: a point mass at t + .05 and the uniform rest above it.
    gap = 0.05

    def with_gap(m: int) -> float:
        def loss(t, s):
            inside = gap / (1 - t)
            return inside * PAPER.cross_entropy(t, t + gap, m) + (1 - inside) * PAPER.cross_entropy(
                t, s, m
            )

        return average_over_times(loss, lambda t: t + gap, whole, cap=0.95)

    close([with_gap(m) for m in RANKS], [3.455, 3.203, 2.950, 2.698, 2.445])
    assert PAPER.nll(1, 1.0) - 2.0 == pytest.approx(1.232, abs=6e-4)  # value part only
    assert PAPER.nll(16, 1.0) - 2.0 == pytest.approx(0.274, abs=6e-4)


@pytest.mark.parametrize(
    ("t", "s", "information", "correlation"),
    [
        (0, 0.25, 2.495, 3.05),
        (0, 0.5, 2.762, 8.33),
        (0, 0.75, 2.773, 13.86),
        (0, 1, 2.773, 19.41),
        (0.25, 0.5, 0.267, 0.473),
        (0.25, 1, 0.278, 1.94),
        (0.5, 0.75, 0.011, 0.033),
        (0.5, 1, 0.011, 0.076),
    ],
)
def test_grid_of_times(t, s, information, correlation) -> None:
    assert PAPER.information(t, s, 16).item() == pytest.approx(information, abs=6e-4)
    assert PAPER.captured_correlation(t, s, 16).item() == pytest.approx(correlation, abs=6e-3)
    assert PAPER.captured_correlation(t, s, 1).item() == PAPER.information(t, s, 1).item() == 0.0


@pytest.mark.parametrize(
    ("groups", "information", "correlation", "one_step"),
    [
        ([1] * 8 + [2] * 4, 2.426, 16.98, 0.504),
        ([1] * 14 + [2], 2.686, 18.80, 0.876),
        ([1] * 10 + [2] * 3, 2.513, 17.59, 0.628),
        ([1] * 7 + [2] * 3 + [3], 2.307, 16.15, 0.441),
    ],
)
def test_uneven_partitions(groups, information, correlation, one_step) -> None:
    assert PAPER.information(0, 1, groups).item() == pytest.approx(information, abs=6e-4)
    assert PAPER.captured_correlation(0, 1, groups).item() == pytest.approx(correlation, abs=6e-3)
    assert PAPER.few_step_validity(1, groups) == pytest.approx(one_step, abs=6e-4)


def test_uneven_partition_that_resembles_the_paper() -> None:
    assert PAPER.nll([1] * 8 + [2] * 4) == pytest.approx(2.388 + 0.126, abs=1e-3)


@pytest.mark.parametrize(("groups", "steps"), [((16,), 4), ((4,) * 4, 2), ((8, 4, 3, 1), 8)])
def test_few_step_validity_by_simulation(groups: tuple[int, ...], steps: int) -> None:
    rows, generator = 40_000, torch.Generator().manual_seed(11)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    sizes = torch.tensor(groups)
    k = torch.multinomial(sizes.float(), rows, replacement=True, generator=generator)
    start, size = (sizes.cumsum(0) - sizes)[k], sizes[k]
    x = torch.full((rows, PAPER.length), PAPER.mask_id)
    times = step_times(steps)
    for low, high in zip(times, times[1:], strict=False):
        reveal = (x == PAPER.mask_id) & (uniform(*x.shape) < (high - low) / (1 - low))
        guess = start[:, None] + (uniform(*x.shape) * size[:, None]).long()
        shown = torch.where(x == PAPER.mask_id, -1, x).amax(-1, keepdim=True)
        x = torch.where(reveal, torch.where(shown >= 0, shown, guess), x)
    assert (x < PAPER.mask_id).all()
    expected = PAPER.few_step_validity(steps, groups)
    error = math.sqrt(expected * (1 - expected) / rows)
    assert PAPER.in_support(x).double().mean().item() == pytest.approx(expected, abs=4 * error)


def test_partitions() -> None:
    assert PAPER.partition(4) == (4, 4, 4, 4)
    assert sorted(PAPER.partition(3)) == [5, 5, 6]
    assert PAPER.partition(99) == (1,) * 16
    assert PAPER.nll(99) == PAPER.nll(16)
    assert PAPER.nll(3) < PAPER.nll([8, 4, 4])


def test_user_mistakes() -> None:
    for components in (0, [8, 4], [17, -1]):
        with pytest.raises(UserError):
            PAPER.partition(components)
    with pytest.raises(UserError):
        HiddenAgreement(values=1)
    with pytest.raises(UserError):
        PAPER.nll(1, t_max=0.0)
    clash = torch.tensor([[1, 2, 3, 3]])
    with pytest.raises(UserError):
        HiddenAgreement(values=3, length=4).log_transition(clash, clash, 0.0, 0.5)
