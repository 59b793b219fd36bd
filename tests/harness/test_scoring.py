"""Log-likelihoods of texts are this package's own numbers, and probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.data.prompt import frame_of
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.likelihood import likelihood
from lkf_plugin.harness.pieces import Framing
from lkf_plugin.harness.scoring import Scorer, ScoringOptions
from lkf_plugin.runs.load import LoadedRun


def framing_of(run: LoadedRun) -> Framing:
    frame = frame_of(run.prepared, run.config.data)
    return Framing(run.prepared.tokenizer, run.config.model.length, frame)


def first_text(run: LoadedRun) -> str:
    """The first held-out sequence, whose number in our evaluations is 0, as is an empty text's."""
    return run.prepared.tokenizer.decode(run.prepared.valid[0]["input_ids"])


def score(run: LoadedRun, context: str, continuation: str, **options) -> float:
    pieces = list(framing_of(run).pieces(context, continuation))
    return Scorer(run, ScoringOptions.read(options)).scores(pieces, greedy=False)[0].nats


def test_nelbo_is_that_of_the_evaluation(run: LoadedRun) -> None:
    ours = likelihood(run, 1, draws=6, seed=5, progress=False)["nelbo"].value
    theirs = -score(run, "", first_text(run), draws=6, seed=5) / run.config.model.length
    assert theirs == pytest.approx(ours, rel=1e-12)


@pytest.mark.parametrize("latent, name", [("redrawn", "nll@4"), ("frozen", "nll_frozen@4")])
def test_few_step_is_that_of_the_evaluation(run: LoadedRun, latent: str, name: str) -> None:
    ours = few_step(run, [4], 1, seed=5, paths=2, progress=False).estimates[name].value
    text, options = first_text(run), {"likelihood": "few_step", "steps": 4, "draws": 2, "seed": 5}
    theirs = -score(run, "", text, latent=latent, **options) / run.config.model.length
    assert theirs == pytest.approx(ours, rel=1e-6)


@pytest.mark.parametrize("likelihood", ["few_step", "replay"])
def test_probabilities_of_every_next_word_add_up_to_one(run: LoadedRun, likelihood: str) -> None:
    framing, scorer = framing_of(run), Scorer(run, ScoringOptions.read({"likelihood": likelihood}))
    given = framing.tokens(first_text(run))[:7]
    words = [i for i in range(framing.ids.vocab_size) if i != framing.ids.mask]
    scores = scorer.scores([framing.piece(given, [word], 3) for word in words])
    assert sum(math.exp(one.nats) for one in scores) == pytest.approx(1, abs=1e-5)
    assert sum(one.greedy for one in scores) == 1
    best = max(range(len(words)), key=lambda i: scores[i].nats)
    assert scores[best].greedy


def test_replay_of_one_token_a_step_is_a_chain_of_next_words(
    run: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to right, log p(a b | c) = log p(a | c) + log p(b | c a), the latent redrawn."""
    monkeypatch.setattr(run.module, "time_conditioning", False)  # else it is told the step
    words = first_text(run).split(" ")
    context, first, second = " ".join(words[:5]), f" {words[5]}", f" {words[6]}"
    options = {"likelihood": "replay", "rule": "left_to_right"}
    whole = score(run, context, first + second, **options)
    chain = score(run, context, first, **options) + score(run, context + first, second, **options)
    assert whole == pytest.approx(chain, abs=1e-5)


@pytest.mark.parametrize("likelihood", ["nelbo", "few_step", "replay"])
def test_company_makes_no_difference(run: LoadedRun, likelihood: str) -> None:
    framing = framing_of(run)
    words = first_text(run).split(" ")
    pieces = [
        piece
        for cut in (3, 5, 9, 12)
        for piece in framing.pieces(" ".join(words[:cut]), " " + " ".join(words[cut : cut + 4]))
    ]
    options = {"likelihood": likelihood, "draws": 3}
    alone = Scorer(run, ScoringOptions.read({**options, "batch_size": 1})).scores(pieces)
    together = Scorer(run, ScoringOptions.read({**options, "batch_size": 4})).scores(pieces[::-1])
    for one, other in zip(alone, together[::-1], strict=True):
        assert one.nats == pytest.approx(other.nats, rel=1e-5) and one.greedy == other.greedy


def test_the_greedy_sampler_says_what_it_says(run: LoadedRun) -> None:
    """Its own text, found one likeliest word after the other, and no text with another word."""
    framing = framing_of(run)
    options = ScoringOptions.read({"rule": "left_to_right"})
    scorer, given, said = Scorer(run, options), framing.tokens(first_text(run))[:4], []
    for _ in range(3):
        x_1L = framing.piece(given + said, [framing.ids.mask], 0).x_L[None]
        potentials, logp_1MLV = scorer.model.law(x_1L, 1.0)
        law_1LV = scorer.model.structure.marginal_log_probs(potentials, logp_1MLV.double())
        said.append(int(law_1LV[0, len(given) + len(said)].argmax()))
    other = [*said[:2], next(i for i in given if i != said[2])]
    found = scorer.scores([framing.piece(given, words, 0) for words in (said, other)])
    assert [one.greedy for one in found] == [True, False]


def test_other_seeds_give_other_draws(run: LoadedRun) -> None:
    text = first_text(run)
    found = [score(run, "", text, draws=2, seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert torch.tensor(found).isfinite().all()


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(UserError, match="nelbo, few_step"):
        ScoringOptions.read({"likelihood": "exact"})
    with pytest.raises(UserError, match="paths"):
        ScoringOptions.read({"paths": 3})
