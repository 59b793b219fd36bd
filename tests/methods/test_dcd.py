"""DCD: the pair of noisy texts by definition, the original's steps, and rounds that resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.methods.dcd import DCD
from lkf_plugin.methods.dcd_math import Noise, draw_noise, gap, pair_of_times, tokens_at
from lkf_plugin.methods.duo_curriculum import argmax_signal
from lkf_plugin.methods.duo_latent import gaussian_latent
from lkf_plugin.runs.common import build_module
from tests.golden_arrays import load
from tests.methods.kills import KEEP, last

ROUNDS = ("trainer.max_steps=8", "method.rounds=2", "method.base_steps=8", "optim.lr=1e-3")
RANGE = ("method.gamma_min=null", "method.gamma_max=null")


def test_steps_of_the_rounds_are_the_original() -> None:
    a = load("duo/dcd_dt.npz")
    base, every = int(a["T"]), int(a["update_teacher_every"])
    ours = [gap(base, step // every) for step in a["step"].tolist()]
    assert ours == a["dt"].tolist()


def test_times_are_moved_up_as_far_as_one() -> None:
    """min(t + dt, 1), and dt below it."""
    t, s = pair_of_times(torch.tensor([0.001, 0.5, 0.99]), 0.0625)
    torch.testing.assert_close(t, torch.tensor([0.0635, 0.5625, 1.0]))
    torch.testing.assert_close(s, torch.tensor([0.001, 0.5, 0.9375]))


@pytest.mark.parametrize("vocab_size", [3, 40])
def test_both_texts_are_the_argmax_of_one_latent(vocab_size: int) -> None:
    """By the definition, from every column of the same Gaussians."""
    torch.manual_seed(1)
    x0 = torch.randint(vocab_size, (200, 8))
    columns = torch.randn(200, 8, vocab_size, dtype=torch.float64)
    own = columns.gather(-1, x0[..., None]).squeeze(-1)
    others = columns.scatter(-1, x0[..., None], -torch.inf).max(-1)
    noise = Noise(own, others.values, others.indices)
    for gamma in (-4.0, -2.0, 1.0):
        gamma_B = torch.full((200,), gamma, dtype=torch.float64)
        whole = gaussian_latent(x0, gamma_B[:, None].expand(x0.shape), columns).argmax(-1)
        assert torch.equal(tokens_at(x0, gamma_B, noise), whole)


def test_the_law_of_the_noise_is_that_of_duo_s_argmax() -> None:
    """Each text alone is uniform-state noise of the signal; the later one is cleaner throughout."""
    torch.manual_seed(2)
    vocab_size, rows = 20, 40_000
    x0 = torch.randint(vocab_size, (rows, 4))
    noise = draw_noise(x0, vocab_size)
    kept = {}
    for gamma in (-3.0, -1.0):
        gamma_B = torch.full((rows,), gamma, dtype=torch.float64)
        x = tokens_at(x0, gamma_B, noise)
        alpha = argmax_signal(gamma_B[:1], vocab_size)[0].item()
        wanted = alpha + (1 - alpha) / vocab_size
        assert (x == x0).double().mean().item() == pytest.approx(wanted, abs=4e-3)
        wrong = x[x != x0]
        share = torch.bincount(wrong, minlength=vocab_size).double() / len(wrong)
        assert (share - 1 / vocab_size).abs().max() < 5 * (0.05 / len(wrong)) ** 0.5
        kept[gamma] = x == x0
    assert (kept[-3.0] | ~kept[-1.0]).all()  # what survives much noise survives little


def test_a_student_comes_back_to_its_teacher(config_of, trained) -> None:
    words = (*ROUNDS, *RANGE, f"method.teacher={trained('duo')}", "method.base_steps=1024")
    torch.manual_seed(0)
    module = build_module(config_of("dcd", *words), agreetext_tokenizer())
    assert isinstance(module, DCD)
    x0 = torch.randint(4, 20, (16, 32))
    with torch.no_grad():
        for weight in module.backbone.output_layer.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    optimizer = torch.optim.AdamW(module.backbone.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = module.train()._loss(x0, torch.ones_like(x0)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert module.teacher_calls == 40 and module.training_facts()["trained_for_steps"] == 512


def test_who_teaches_the_next_round_and_what_records_say(
    config_of, trained, tmp_path: Path
) -> None:
    """The trained weights, or with ``ema_on_growth`` their average."""
    words = (*ROUNDS, *RANGE, *KEEP, f"method.teacher={trained('duo')}", "training.ema=0.5")
    for name, options in (("raw", ()), ("average", ("method.ema_on_growth=true",))):
        folder = tmp_path / name
        cli.run(config_of("dcd", *words, *options, f"run_dir={folder}"))
        teacher = read_checkpoint(folder / "checkpoints" / "step-5.ckpt")["teacher"]["weights"]
        raw = read_checkpoint(folder / "checkpoints" / "step-4.ckpt")["state_dict"]
        same = [torch.equal(raw[f"backbone.{name}"], one) for name, one in teacher.items()]
        assert all(same) == (name == "raw")
    at_end = (f"run_dir={tmp_path / 'raw'}", f"eval.checkpoint_path={last(tmp_path / 'raw')}")
    cli.run(config_of("dcd", *words, *at_end, "mode=ppl_eval"))
    report = json.loads((tmp_path / "raw" / "ppl_eval.json").read_text())
    assert "student itself" in report["likelihood_of"] and report["trained_for_steps"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("method.base_steps=6",), "must halve method.base_steps=6"),
        (("method.gamma_min=2", "method.gamma_max=1"), "must lie below"),
        (("method.ema_on_growth=true", "training.ema=0"), "needs an average"),
        (("method.teacher=",), "name its checkpoint"),
    ],
)
def test_what_does_not_fit_is_told(config_of, trained, words, said) -> None:
    with pytest.raises(UserError, match=said):
        cli.run(config_of("dcd", *ROUNDS, f"method.teacher={trained('duo')}", *words))
