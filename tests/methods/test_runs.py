"""Every baseline through the command line's entry: train, resume, evaluate, sample, refuse."""

from __future__ import annotations

import json

import pytest
import torch

from lkf_plugin.cli import run
from lkf_plugin.config import validate
from lkf_plugin.errors import UserError

NAMES = ("ar", "mdlm", "sedd", "duo")


@pytest.mark.parametrize("name", NAMES)
def test_train_evaluate_and_sample(config_of, tmp_path, name):
    logged = run(config_of(name))
    assert logged["val/nll"] > 0 and logged["val/nll_se"] > 0
    report = run(config_of(name, "mode=ppl_eval"))
    assert report["method"] == name
    assert report["metrics"]["val/nll"] == pytest.approx(logged["val/nll"], abs=1e-9)
    sampled = run(config_of(name, "mode=sample_eval"))
    chain = 32 if name == "ar" else 3
    extra = 0 if name in ("ar", "mdlm") else 1
    assert sampled["policy"] == name and sampled["steps_calls"] == chain
    assert chain + extra <= sampled["network_calls"] <= chain + 1
    best = run(config_of(name, "mode=sample_eval", "decode=best_of_n", "decode.num_candidates=2"))
    scoring = 0 if name == "ar" else 4
    assert best["policy"] == "best_of_n" and best["steps_calls"] == 2 * (chain + scoring)
    rows = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    assert len(rows) == 4 and len(json.loads(rows[0])["ids"]) == 32


def test_a_run_goes_on_where_it_stopped(config_of, tmp_path):
    """DUO's curriculum follows the step, so a resumed run is the unbroken one."""
    fixed = "method.curriculum.end=3"
    run(config_of("duo", fixed))
    whole = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt")["state_dict"]
    other = f"run_dir={tmp_path / 'other'}"
    run(config_of("duo", fixed, "trainer.max_steps=2", other))
    run(config_of("duo", fixed, other))
    resumed = torch.load(tmp_path / "other" / "checkpoints" / "last.ckpt")["state_dict"]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize(
    ("name", "overrides", "told"),
    [
        ("sedd", ("host=mdlm",), "host=builtin"),
        ("sedd", ("time_conditioning=false",), "time_conditioning is true"),
        ("sedd", ("sampling.predictor=ddpm",), "analytic or euler"),
        ("duo", ("sampling.predictor=analytic",), "ancestral"),
        ("duo", ("diffusion=absorbing_state",), "diffusion is uniform_state"),
        ("duo", ("method.last_pass=never",), "last_pass"),
        ("duo", ("method.curriculum.start=9",), "curriculum.start"),
        ("duo", ("method.curriculum.gamma_min=0",), "gamma_min"),
        ("duo", ("sampling.prompt=these",), "sampling.prompt=null"),
        ("ar", ("method.start=end",), "mask or data"),
        ("ar", ("T=10",), "T=0"),
        ("mdlm", ("model=lkf", "loss=mixture", "model.latent_blocks=1"), "without a latent"),
        ("mdlm", ("decode=commit",), "best_of_n"),
        ("mdlm", ("decode=best_of_n", "decode.selector=evidence"), "nelbo"),
        ("auto", ("diffusion=uniform_state",), "method=duo"),
        ("auto", ("parameterization=sedd",), "method=sedd"),
    ],
)
def test_mistakes_are_told(config_of, name, overrides, told):
    host = "mdlm" if "host=mdlm" in overrides else "builtin"
    with pytest.raises(UserError, match=told):
        validate(config_of(name, *overrides), host)
