"""method=di4c from a teacher without a latent to one with: kept bit for bit, counted, labelled."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.methods.di4c_math import divergence
from lkf_plugin.runs.common import build_module
from tests.methods.kills import last

SIZES = ("trainer.max_steps=6", "method.rounds=2", "method.latents=3", "optim.lr=1e-3")


@pytest.fixture
def teacher(trained: Callable[[str], Path]) -> str:
    return f"method.teacher={trained('mdlm')}"


def test_terms_of_the_loss_are_logged(runs, teacher, tmp_path):
    cli.run(runs("di4c", "run", *SIZES, teacher))
    with open(tmp_path / "run" / "metrics.csv", encoding="utf-8") as lines:
        assert {"train/distil", "train/data", "train/consistency"} <= set(
            csv.DictReader(lines).fieldnames or ()
        )


def test_a_mixture_teaches_from_the_first_round(runs, teacher, tmp_path):
    cli.run(runs("di4c", "first", *SIZES, teacher))
    second = f"method.teacher={last(tmp_path / 'first')}"
    cli.run(runs("di4c", "second", *SIZES, second))
    assert read_checkpoint(last(tmp_path / "second"))["teacher"]["calls"] == 6 * 3
    cli.run(runs("sdtt", "sdtt", "trainer.max_steps=2", "method.rounds=1", teacher))
    cli.run(runs("di4c", "third", *SIZES, f"method.teacher={last(tmp_path / 'sdtt')}"))
    assert read_checkpoint(last(tmp_path / "third"))["teacher"]["calls"] == 3 + 3 * 3


def test_samples_and_likelihood_say_what_they_are(runs, teacher, tmp_path):
    cli.run(runs("di4c", "run", *SIZES, teacher))
    cli.run(runs("di4c", "run", *SIZES, "mode=sample_eval", "sampling.steps=2"))
    record = json.loads((tmp_path / "run" / "sample_eval.json").read_text())
    assert (record["steps_calls"], record["network_calls"]) == (2, 3)
    cli.run(runs("di4c", "run", *SIZES, "mode=ppl_eval"))
    report = json.loads((tmp_path / "run" / "ppl_eval.json").read_text())
    assert "one latent drawn per sequence" in report["likelihood_of"]
    assert report["teacher_calls"] > 0


def test_one_latent_is_factorised_distillation(runs, teacher):
    """The module's loss on a batch is that of products: no correlation, no gain of the mixture."""
    config = runs("di4c", "run", *SIZES, teacher, "method.latents=1", "method.small_times=1")
    torch.manual_seed(0)
    module = build_module(config, agreetext_tokenizer()).double().train()
    module.teacher.double()
    x0 = torch.randint(4, 20, (6, 32))
    attended = torch.ones_like(x0)
    attended[0, 10:] = 0
    seen = {}
    log_probs = module._log_probs

    def watched(network, x, sigma, z):
        seen["teacher" if network is module.teacher else f"student{len(seen)}"] = (
            x,
            found := log_probs(network, x, sigma, z),
        )
        return found

    module._log_probs = watched
    torch.manual_seed(3)
    with torch.no_grad():
        loss = module._loss(x0, attended).loss
    xt, teacher_logp = seen["teacher"]
    _, student_logp = seen["student2"]
    assert torch.equal(xt[0, 10:], x0[0, 10:])  # padding is never masked
    wanted = 2 * divergence(teacher_logp, student_logp).mean()
    torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("words", "sentence"),
    (
        (("method.rounds=4",), "method.rounds=4 must divide trainer.max_steps=6"),
        (("method.teacher=''",), "name its checkpoint in method.teacher"),
        (("method.delta=1",), "method.delta"),
        (("sampling.predictor=ddpm_cache",), "take ddpm"),
        (("model.hidden_size=32",), "hidden_size"),
    ),
)
def test_mistakes_are_told_before_anything_is_written(runs, teacher, tmp_path, words, sentence):
    with pytest.raises(UserError, match=sentence):
        cli.run(runs("di4c", "run", *SIZES, teacher, *words))
    assert not (tmp_path / "run" / "checkpoints").exists()
