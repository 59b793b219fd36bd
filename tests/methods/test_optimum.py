"""Each baseline, trained on AgreeText, comes near the optimum that is known there."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import open_dict

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.corpora import agreetext

CLAUSES = 4
PLAIN = "experiment=agreetext_baseline"
GAMMAS = ("method.curriculum.gamma_min=null", "method.curriculum.gamma_max=null")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides", "tolerance"),
    [
        ("ar", ("trainer.max_steps=600",), 0.005),
        ("mdlm", (), 0.02),
        ("sedd", (), 0.02),
        ("duo", ("trainer.max_steps=1500", *GAMMAS), 0.02),
    ],
)
def test_likelihood_reaches_the_optimum(tmp_path, name, overrides, tolerance):
    """A NELBO has Monte Carlo error of its own, so two standard errors are allowed on top."""
    register_resolvers()
    settings = [
        *(["experiment=agreetext_ar"] if name == "ar" else [PLAIN, f"method={name}"]),
        *overrides,
        "trainer.limit_val_batches=1.0",
        f"run_dir={tmp_path / 'run'}",
        f"data.cache_dir={tmp_path / 'cache'}",
    ]
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        config = compose("config", settings)
    with open_dict(config):
        config.pop("hydra", None)
    metrics = cli.run(config)
    gap = metrics["val/nll"] - agreetext.nelbo_optimum(CLAUSES)
    assert abs(gap) < tolerance + 2 * metrics["val/nll_se"]
