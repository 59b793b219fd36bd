"""The likelihood of few steps of distilled students: their own sampler's, and Di4C's integral."""

from __future__ import annotations

import json

import pytest
import torch

from lkf_plugin import cli
from lkf_plugin.errors import UserError
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.host_steps import HostSteps
from lkf_plugin.methods.di4c_steps import DrawnLatentSteps
from lkf_plugin.runs.load import load_run

ROUNDS = ("trainer.max_steps=4", "method.rounds=2", "method.base_steps=8", "optim.lr=1e-3")


def test_an_sdtt_student_s_bound_is_its_own_and_is_labelled(config_of, trained, tmp_path, capsys):
    words = (*ROUNDS, f"method.teacher={trained('mdlm')}", "sampling.predictor=ddpm")
    cli.run(config_of("sdtt", *words))
    capsys.readouterr()
    cli.run(config_of("sdtt", *words, "mode=ppl_eval", "eval.steps=[1,2]"))
    shown = capsys.readouterr().out
    report = json.loads((tmp_path / "run" / "ppl_eval.json").read_text())
    assert "own sampler of J steps" in shown and "NELBO of the student itself" in shown
    assert "own sampler" in report["few_step_likelihood_of"]
    run = load_run(tmp_path / "run")
    x_BL = torch.as_tensor(run.prepared.valid[:]["input_ids"])
    # one step reveals everything at once: the law of the all-mask text, with no bound's slack
    state = torch.full_like(x_BL, run.module.mask_index)
    with torch.no_grad():
        logp = run.module.forward(state, run.module.noise(torch.ones(len(x_BL)))[0])
    nats = -logp.gather(-1, x_BL[..., None]).squeeze(-1).double().sum(-1).mean() / x_BL.shape[1]
    assert report["likelihood"]["nll@1"]["value"] == pytest.approx(float(nats), rel=1e-5)
    assert report["metrics"]["val/nll@2"] > 0


def test_duo_s_students_have_no_such_bound(config_of, trained, tmp_path):
    words = (f"method.teacher={trained('duo')}", "method.pairs=4", "method.generation_steps=2")
    cli.run(config_of("redi", *words))
    with pytest.raises(UserError, match="reveal masks in J steps .*leave it out for redi"):
        cli.run(config_of("redi", *words, "mode=ppl_eval", "eval.steps=[1]"))


def test_di4c_s_bound_closes_in_on_the_integral_over_its_latent(module_of) -> None:
    """-log of the mean over drawn latents is above the integral's, and meets it with many."""
    module = module_of("di4c", "method.teacher=none.ckpt", "mode=sample_eval")
    with torch.no_grad():  # random weights hardly hear the latent
        for block in module.backbone.blocks:
            block.attn_qkv.weight.mul_(4)
        module.backbone.output_layer.linear.weight.mul_(4)
    x_BL = torch.randint(4, 20, (4, 32))
    seed_B = torch.arange(4)
    state = torch.full_like(x_BL, module.mask_index)
    sigma_B = module.noise(torch.ones(4))[0]
    z_Z = (torch.arange(512, dtype=torch.float64) + 0.5) / 512  # the midpoint rule
    with torch.no_grad():
        logp_ZB = torch.stack([
            module.log_probs_under(state, sigma_B, torch.full((4,), float(z)))
            .gather(-1, x_BL[..., None]).squeeze(-1).double().sum(-1)
            for z in z_Z
        ])  # fmt: skip
    integral_B = -(torch.logsumexp(logp_ZB, 0) - torch.log(torch.tensor(512.0)))

    def bound(count: int, seed: int) -> torch.Tensor:
        return few_step_nelbo(DrawnLatentSteps(module, count, seed), x_BL, 1, seed_B).redrawn_B

    few = torch.stack([bound(2, seed) for seed in range(24)]).mean(0)
    many = torch.stack([bound(64, seed) for seed in range(6)]).mean(0)
    assert (few > integral_B).all()
    gap_few, gap_many = (few - integral_B).mean(), (many - integral_B).mean()
    assert gap_many.abs() < 0.35 * gap_few
    assert not DrawnLatentSteps.holds_latent and HostSteps.holds_latent
