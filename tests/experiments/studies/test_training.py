"""The studies' training loop: resumes bit for bit, and learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments.studies import training
from experiments.studies.agreetext import agreetext_recipe
from experiments.studies.recipe import Recipe, make_corpus
from experiments.studies.training import Trainer, train
from lkf_plugin.errors import UserError

TINY = Recipe("hidden", 3, 14, 0, batch=8, width=16, warmup=2)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.backbone.parameters()])


@pytest.mark.parametrize("ties", ["none", "balance+split"])
def test_resumed_run_equals_unbroken_run(tmp_path, monkeypatch, ties):
    recipe = replace(TINY, ties=ties)
    monkeypatch.setattr(training, "SAVE_EVERY", 5)
    whole = train(recipe, tmp_path / "whole", quiet=True)

    step = Trainer.train_step

    def interrupted(self):
        if self.step == 7:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut", quiet=True)
    monkeypatch.setattr(Trainer, "train_step", step)
    resumed = train(recipe, tmp_path / "cut", quiet=True)
    assert resumed.step == 14
    assert torch.equal(weights(whole), weights(resumed))


def test_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    first = train(TINY, tmp_path, quiet=True)
    monkeypatch.setattr(Trainer, "train_step", lambda self: pytest.fail("trained again"))
    assert torch.equal(weights(first), weights(train(TINY, tmp_path, quiet=True)))


def test_average_of_agreetext_is_what_is_looked_at(tmp_path):
    recipe = replace(agreetext_recipe(2, 8, 0), width=16, batch=4)
    trainer = train(recipe, tmp_path, quiet=True)
    live = weights(trainer)
    trainer.finished()
    assert not torch.equal(live, weights(trainer))
    assert torch.equal(weights(train(recipe, tmp_path, quiet=True)), live)


def test_loss_falls():
    trainer = Trainer(Recipe("hidden", 1, 150, 0, width=32))
    losses = [trainer.train_step() for _ in range(80)]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_recipes_have_their_own_folders(tmp_path):
    changed = [replace(TINY, seed=1), replace(TINY, form="learned"), replace(TINY, ties="split")]
    assert len({recipe.folder(tmp_path) for recipe in [TINY, *changed]}) == 4


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"corpus": "none"}, "agreetext"),
        ({"ties": "magic"}, "balance"),
        ({"objective": "mse"}, "two_time"),
        ({"steps": 2}, "warm-up"),
    ],
)
def test_wrong_recipes_say_what_to_take(change, word):
    with pytest.raises(UserError, match=word):
        replace(TINY, **change)


def test_checkpoint_of_another_recipe(tmp_path):
    trainer = train(TINY, tmp_path, quiet=True)
    state = {**trainer.state(), "recipe": {}}
    with pytest.raises(UserError, match="another recipe"):
        Trainer(TINY).load(state)


@pytest.mark.parametrize("corpus", ["hidden", "parity", "agreetext"])
def test_corpora_fit_the_interface(corpus):
    made = make_corpus(corpus)
    x = made.sample(3, 0)
    assert x.shape == (3, made.length)
    assert 0 <= x.min().item() and x.max().item() < made.mask_id
