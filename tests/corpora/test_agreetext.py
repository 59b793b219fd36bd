from __future__ import annotations

import itertools
import math

import pytest
import torch

from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.agreetext_grammar import NUMBERS, SLOTS, TOPICS, carriers
from lkf_plugin.errors import UserError

ID = {word: index for index, word in enumerate(agreetext.words())}


def encode(text: str) -> torch.Tensor:
    ids = [agreetext.MASK_ID if word == "____" else ID[word] for word in text.split()]
    return torch.tensor([ids])


def slow_faults(ids: list[int]) -> list[bool]:
    """The rules once more, word by word."""

    def parse(position: int) -> int | None:
        slot = SLOTS[position % 8]
        place = ids[position] - slot.offset
        return place // slot.lexemes if 0 <= place < slot.size else None

    wrong = [parse(i) is None and token != agreetext.MASK_ID for i, token in enumerate(ids)]
    scopes = [[i for i in range(len(ids)) if i % 8 in (1, 3, 6)]]
    scopes += [[start + i for i in (0, 2, 4)] for start in range(0, len(ids), 8)]
    for scope in scopes:
        shown = [parse(i) for i in scope]
        counted = [value for value in shown if value is not None]
        if counted:
            winner = max(counted, key=counted.count)  # the first of those with the most votes
            for i, value in zip(scope, shown, strict=True):
                wrong[i] = wrong[i] or (value is not None and value != winner)
    return wrong


def test_lexicon() -> None:
    words = agreetext.words()
    assert len(words) == len(set(words)) == agreetext.VOCAB_SIZE == agreetext.MASK_ID == 87
    assert all(word and not any(letter.isspace() for letter in word) for word in words)
    assert words[:2] == ["this", "these"] and words[-1] == "."
    assert [slot.offset for slot in SLOTS] == [0, 2, 18, 34, 50, 66, 70, 86]
    assert carriers("topic") == [1, 3, 6] and carriers("number") == [0, 2, 4]
    words.clear()
    assert len(agreetext.words()) == 87


def test_samples() -> None:
    before = torch.get_rng_state()
    x = agreetext.sample(1000, 4, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert x.shape == (1000, 32) and x.dtype == torch.long
    assert torch.equal(x, agreetext.sample(1000, 4, seed=1))
    assert not torch.equal(x, agreetext.sample(1000, 4, seed=2))
    assert agreetext.valid(x).all()
    assert x.unique().numel() == 87
    assert agreetext.sample(0, 8, seed=0).shape == (0, 64)


def test_marginals_are_uniform_in_each_slot() -> None:
    x = agreetext.sample(20_000, 1, seed=0)
    for column, slot in zip(x.unbind(1), SLOTS, strict=True):
        share = torch.bincount(column - slot.offset, minlength=slot.size).double() / len(x)
        error = math.sqrt(1 / slot.size * (1 - 1 / slot.size) / len(x))
        assert (share - 1 / slot.size).abs().max() <= 5 * error


def test_valid_accepts_exactly_the_configurations() -> None:
    """All feature values of one clause's words, lexeme 0: 8 valid ones in 512."""
    choices = [[slot.offset + f * slot.lexemes for f in range(slot.values)] for slot in SLOTS]
    x = torch.tensor(list(itertools.product(*choices)))
    assert len(x) == len(NUMBERS) ** 3 * len(TOPICS) ** 3
    kept = x[agreetext.valid(x)]
    assert sorted(agreetext.configuration(kept).tolist()) == list(range(8))
    assert sorted(agreetext.configuration(x).tolist()) == [-1] * 504 + list(range(8))


def test_faults_against_a_word_by_word_reading() -> None:
    generator = torch.Generator().manual_seed(0)
    x = agreetext.sample(400, 3, seed=0)
    other = agreetext.sample(400, 3, seed=1)
    mixed = torch.where(torch.rand(x.shape, generator=generator) < 0.4, other, x)
    noise = torch.randint(-2, 92, x.shape, generator=generator)
    noisy = torch.where(torch.rand(x.shape, generator=generator) < 0.15, noise, mixed)
    masked = torch.where(torch.rand(x.shape, generator=generator) < 0.4, 87, noisy)
    for batch in (x, mixed, noisy, masked, torch.full_like(x, 87), noise):
        got = agreetext.faults(batch)
        assert got.tolist() == [slow_faults(row) for row in batch.tolist()]
        clean = ~got.any(-1) & (batch != 87).all(-1)
        assert torch.equal(agreetext.valid(batch), clean)


def test_render() -> None:
    text = "these salty foxes breezily run beyond soup . this briny fox tidally dream near surf ."
    x = encode(text)
    assert agreetext.render(x[0], mark=False) == text
    assert agreetext.render(x[0]) == text.replace("soup", "*soup*").replace("dream", "*dream*")
    coloured = agreetext.render(x[0], color=True)
    assert "\x1b[1;31msoup\x1b[0m" in coloured and "*" not in coloured
    x[0, 1], x[0, 7], x[0, 9] = 87, 0, 99
    assert agreetext.render(x[0]).split()[:10] == (
        "these ____ foxes breezily run beyond *soup* *this* this *<99>*".split()
    )
    assert "\x1b[2m____\x1b[0m" in agreetext.render(x[0], color=True)
    assert agreetext.render(encode(text)[0]).split()[0] == "these"


def test_a_tie_goes_to_the_first() -> None:
    x = encode("these salty foxes hungrily ____ beyond ____ .")
    assert agreetext.render(x[0]) == "these salty foxes *hungrily* ____ beyond ____ ."
    x = encode("this salty foxes ____ ____ beyond ____ .")
    assert agreetext.render(x[0]) == "this salty *foxes* ____ ____ beyond ____ ."
    assert not agreetext.valid(x).any()


def test_configuration_and_its_entropy() -> None:
    x = encode(
        "this mossy fox wildly runs with moss . these mossy foxes wildly run with moss . "
        "this mossy fox wildly runs with moss ."
    )
    assert agreetext.configuration(x).tolist() == [2 * 8 + 0b010]
    many = agreetext.sample(5000, 2, seed=0)
    result = agreetext.configuration_entropy(many)
    assert result.rows == 5000 and result.ceiling == pytest.approx(math.log(16))
    assert result.plug_in == pytest.approx(result.expected, abs=0.002)
    many[:, 7] = 0
    spoiled = agreetext.configuration_entropy(many)
    assert (spoiled.plug_in, spoiled.expected, spoiled.rows) == (0.0, 0.0, 0)


def test_user_mistakes() -> None:
    with pytest.raises(UserError):
        agreetext.sample(1, 0, seed=0)
    with pytest.raises(UserError):
        agreetext.sample(-1, 4, seed=0)
    for shape in ((2, 12), (2, 0), (16,)):
        with pytest.raises(UserError):
            agreetext.faults(torch.zeros(shape, dtype=torch.long))
