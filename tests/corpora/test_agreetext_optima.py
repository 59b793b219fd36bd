from __future__ import annotations

import itertools
import math

import pytest
import torch

from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.agreetext_grammar import SLOTS
from lkf_plugin.corpora.agreetext_optima import component_bits
from lkf_plugin.corpora.few_step import step_times
from lkf_plugin.errors import UserError

LOG2 = math.log(2)


@pytest.mark.parametrize(
    ("clauses", "nats", "bits", "per_token", "perplexity", "correlation_bits"),
    [
        (4, 42.975, 62, 1.3430, 3.830, 30),
        (8, 84.564, 122, 1.3213, 3.748, 62),
        (16, 167.742, 242, 1.3105, 3.708, 126),
    ],
)
def test_entropy(clauses, nats, bits, per_token, perplexity, correlation_bits) -> None:
    entropy = agreetext.entropy_nats(clauses)
    assert entropy == pytest.approx(nats, abs=6e-4)
    assert entropy / LOG2 == pytest.approx(bits)
    assert agreetext.nelbo_optimum(clauses) == pytest.approx(per_token, abs=6e-5)
    assert math.exp(agreetext.nelbo_optimum(clauses)) == pytest.approx(perplexity, abs=6e-4)
    correlation = agreetext.total_correlation(clauses)
    assert correlation / LOG2 == pytest.approx(correlation_bits)
    # Every slot is uniform on its own, so the marginal entropies add up to this.
    assert clauses * sum(math.log(slot.size) for slot in SLOTS) - entropy == pytest.approx(
        correlation
    )
    # A factorized sampler hits the support in one step with probability exp(-TC).
    assert agreetext.few_step_validity(1, clauses) == pytest.approx(math.exp(-correlation))


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        (4, [1.3430, 1.2966, 1.2644, 1.2553, 1.2501, 1.2473, 1.2455]),
        (16, [1.3105, 1.2932, 1.2795, 1.2727, 1.2672, 1.2625, 1.2585]),
    ],
)
def test_clean_posterior_table(clauses: int, expected: list[float]) -> None:
    got = [agreetext.clean_posterior_optimum(clauses, 2**b) for b in range(7)]
    assert got == pytest.approx(expected, abs=6e-5)
    assert got[0] == pytest.approx(agreetext.nelbo_optimum(clauses), abs=1e-12)


def test_clean_posterior_with_the_full_latent() -> None:
    for clauses in (1, 4, 8):
        lexemes = clauses * sum(math.log(slot.lexemes) for slot in SLOTS)
        full = lexemes + math.log(4) / (3 * clauses) + clauses * LOG2 / 3
        got = agreetext.clean_posterior_optimum(clauses, 4 * 2**clauses)
        assert got == pytest.approx(full / (8 * clauses), abs=1e-12)
        assert agreetext.clean_posterior_optimum(clauses, 2**20) == pytest.approx(got, abs=1e-12)


def explicit_loss(bits: int, topics_hidden: int, numbers_hidden: tuple[int, ...]) -> float:
    """NLL of the masked carriers under the allocated mixture, written out component by component.

    ``topics_hidden`` of the 3C topic words and ``numbers_hidden[c]`` of the three number words of
    clause c are masked. True features: all 0.
    """
    clauses = len(numbers_hidden)
    topic_known = topics_hidden < 3 * clauses
    on_topic = 0 if topic_known else min(bits, 2)
    open_clauses = [c for c in range(clauses) if numbers_hidden[c] == 3]
    decided = open_clauses[: bits - on_topic]
    likelihoods = []
    for k in itertools.product((0, 1), repeat=on_topic + len(decided)):
        like = 1.0
        if not topic_known:  # the bits given fix the topic's high bits
            like *= (2.0 ** (on_topic - 2) if not any(k[:on_topic]) else 0.0) ** topics_hidden
        for clause in open_clauses:
            if clause in decided:
                like *= 1.0 if k[on_topic + decided.index(clause)] == 0 else 0.0
            else:
                like *= 0.5**3
        likelihoods.append(like)
    return -math.log(sum(likelihoods) / len(likelihoods))


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 4, 5])
def test_clean_posterior_by_summing_over_all_masks(bits: int) -> None:
    clauses, size = 2, 12  # 6 topic words and 3 + 3 number words
    total = 0.0
    for hidden in itertools.product(range(7), range(4), range(4)):
        n = sum(hidden)
        if n == 0:
            continue
        # integral of tau^(n-1) (1-tau)^(size-n) d tau
        weight = math.factorial(n - 1) * math.factorial(size - n) / math.factorial(size)
        ways = math.comb(6, hidden[0]) * math.comb(3, hidden[1]) * math.comb(3, hidden[2])
        total += ways * weight * explicit_loss(bits, hidden[0], hidden[1:])
    total += clauses * sum(math.log(slot.lexemes) for slot in SLOTS)
    got = agreetext.clean_posterior_optimum(clauses, 2**bits) * 8 * clauses
    assert got == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("components", [1, 2, 4, 8])
def test_allocation_is_what_em_finds_when_all_is_masked(fit_mixture, components: int) -> None:
    """Carriers of one clause: three topic words and three number words."""
    strings = torch.tensor([[z] * 3 + [n] * 3 for z in range(4) for n in range(2)])
    prob = torch.full((8,), 1 / 8, dtype=torch.float64)
    loss, _, _ = fit_mixture(strings, prob, components, restarts=64)
    bits = component_bits(components)
    expected = 3 * (math.log(4) + LOG2) - 2 * bits * LOG2
    assert expected == pytest.approx(explicit_loss(bits, 3, (3,)))
    assert loss == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("components", "printed"),
    [
        (1, [9e-10, 0.0020, 0.090, 0.347, 0.608, 0.785, 0.888]),
        (4, [0.0039, 0.153, 0.436, 0.675, 0.825, 0.909, 0.954]),
        (8, [0.0156, 0.244, 0.536, 0.744, 0.866, 0.931, 0.965]),
        (64, [1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_few_step_table(components: int, printed: list[float]) -> None:
    for steps, expected in zip((1, 2, 4, 8, 16, 32, 64), printed, strict=True):
        unit = 1e-10 if expected < 1e-6 else 1e-4 if expected < 0.02 else 1e-3
        got = agreetext.few_step_validity(steps, 4, components)
        assert got == pytest.approx(expected, abs=0.6 * unit)


def test_few_step_values_of_long_sequences() -> None:
    for steps, components, expected in (
        (8, 1, 0.006),
        (32, 1, 0.356),
        (8, 4, 0.207),
        (32, 4, 0.684),
    ):
        got = agreetext.few_step_validity(steps, 16, components)
        assert got == pytest.approx(expected, abs=6e-4)


def simulate(rows: int, clauses: int, steps: int, bits: int, adaptive: bool) -> torch.Tensor:
    """Run the perfect sampler on words and return the sequences."""
    generator = torch.Generator().manual_seed(bits + 10 * adaptive)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, (rows, *shape), generator=generator)

    mask, on_topic = agreetext.MASK_ID, min(bits, 2)
    x = torch.full((rows, clauses, 8), mask)
    offset = torch.tensor([slot.offset for slot in SLOTS])
    lexemes = torch.tensor([slot.lexemes for slot in SLOTS])
    topic_slots, number_slots = [1, 3, 6], [0, 2, 4]
    latent_topic, latent_number = draw(4, 1, 1), draw(2, clauses, 1)
    times = step_times(steps)
    for low, high in zip(times, times[1:], strict=False):
        if adaptive:
            latent_topic, latent_number = draw(4, 1, 1), draw(2, clauses, 1)
        shown = torch.where(x == mask, -1, (x - offset) // lexemes)
        topic = shown[..., topic_slots].flatten(1).amax(-1)[:, None, None]
        number = shown[..., number_slots].amax(-1, keepdim=True)
        topic_hidden, number_hidden = topic < 0, number < 0
        low_bits = 2 ** (2 - on_topic)
        guess = latent_topic // low_bits * low_bits + draw(low_bits, clauses, 3)
        value = torch.zeros(rows, clauses, 8, dtype=torch.long)
        value[..., topic_slots] = torch.where(topic_hidden, guess, topic)
        left = torch.where(topic_hidden, bits - on_topic, bits) if adaptive else bits - on_topic
        # Which clauses get a bit: the first ones, or the first hidden ones.
        rank = number_hidden.cumsum(1) if adaptive else torch.arange(1, clauses + 1)[:, None]
        guess = torch.where(rank <= left, latent_number, draw(2, clauses, 3))
        value[..., number_slots] = torch.where(number_hidden, guess, number)
        words = offset + value * lexemes  # lexeme 0 everywhere: it plays no part
        reveal = torch.rand(x.shape, generator=generator) < (high - low) / (1 - low)
        x = torch.where((x == mask) & reveal, words, x)
    return x.flatten(1)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(("steps", "bits"), [(2, 0), (4, 1), (2, 2), (4, 3), (8, 2)])
def test_few_step_validity_by_simulation(steps: int, bits: int, adaptive: bool) -> None:
    rows, clauses = 10_000, 4
    x = simulate(rows, clauses, steps, bits, adaptive)
    expected = agreetext.few_step_validity(steps, clauses, 2**bits, adaptive=adaptive)
    error = math.sqrt(expected * (1 - expected) / rows)
    share = agreetext.valid(x).double().mean().item()
    assert share == pytest.approx(expected, abs=4 * error)


def test_dealing_again_never_hurts() -> None:
    for components in (1, 2, 4, 8, 64):
        for steps in (1, 2, 8):
            fixed = agreetext.few_step_validity(steps, 4, components)
            adaptive = agreetext.few_step_validity(steps, 4, components, adaptive=True)
            assert adaptive >= fixed - 1e-12
            if steps == 1 or components in (1, 64):
                assert adaptive == pytest.approx(fixed, rel=1e-12)
    assert agreetext.few_step_validity(4, 4, 4, adaptive=True) > 0.67


def test_user_mistakes() -> None:
    for components in (0, -2, 3, 12):
        with pytest.raises(UserError):
            agreetext.few_step_validity(4, 4, components)
        with pytest.raises(UserError):
            agreetext.clean_posterior_optimum(4, components)
    for function in (agreetext.entropy_nats, agreetext.total_correlation, agreetext.nelbo_optimum):
        with pytest.raises(UserError):
            function(0)
