"""AgreeText's sweep over M: both losses against the entropy, and few-step validity.

Shape legend: B rows, G samples, L positions. Unit: nats per token.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from experiments.studies.measures import HELD_OUT, STEPS_J, rate_of
from experiments.studies.recipe import CLAUSES, Recipe, make_corpus
from experiments.studies.sampling import frozen_samples
from experiments.studies.training import corrupt, objective_of
from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corpora import agreetext
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.train.seeding import derive_seed, seed_position

BATCHES, ROWS = 120, 25
SAMPLES = 512


def agreetext_recipe(components: int, steps: int, seed: int) -> Recipe:
    """The recipe of configs/experiment/demo.yaml in the studies' own loop, two blocks latent.

    With one latent block the components say the topic and the numbers, but are slow to learn what
    the revealed tokens add to that.
    """
    return Recipe(
        corpus="agreetext",
        components=components,
        steps=steps,
        seed=seed,
        batch=32,
        lr=3e-3,
        warmup=min(50, steps // 4),
        objective="mixture",
        blocks=3,
        ema=0.99,
        latent_blocks=2 if components > 1 else 1,
    )


@torch.no_grad()
def measure_agreetext(backbone: LatentKernelBackbone, recipe: Recipe) -> dict[str, Any]:
    """L_x0 and the marginal NELBO less H / L, validity and diversity against J."""
    corpus = make_corpus("agreetext")
    objective = objective_of(recipe)
    mixture, marginal = [], []
    for batch in range(BATCHES):
        x1_BL = corpus.sample(ROWS, derive_seed(0, HELD_OUT, batch))
        seed_position(0, HELD_OUT, "noise", batch)
        # times are stratified inside a batch, so a batch's mean is the unit of the error
        corruption = corrupt(objective, x1_BL, corpus.mask_id)
        value = objective.loss(objective.score(backbone, corruption), corruption)
        mixture.append(value.nll_B.mean().item())
        marginal.append(value.nlls_BL.sum(-1).mean().item())
    target = agreetext.nelbo_optimum(CLAUSES)
    optimum = agreetext.clean_posterior_optimum(CLAUSES, recipe.components)
    metrics: dict[str, Any] = {
        "mixture_less_entropy": _over_batches(mixture, corpus.length, target),
        "mixture_less_entropy_exact": optimum - target,
        "marginal_less_entropy": _over_batches(marginal, corpus.length, target),
        "J": list(STEPS_J),
        "valid": [],
        "valid_exact": [],
        "configuration_entropy": [],
        "configuration_entropy_expected": [],
        "samples": SAMPLES,
    }
    for J in STEPS_J:
        x_GL, _ = frozen_samples(backbone, corpus.length, SAMPLES, J, seed=1, two_time=False)
        spread = agreetext.configuration_entropy(x_GL)
        exact = agreetext.few_step_validity(
            J, CLAUSES, recipe.components, adaptive=recipe.components > 1
        )
        metrics["valid"].append(rate_of(agreetext.valid(x_GL)))
        metrics["valid_exact"].append(exact)
        metrics["configuration_entropy"].append(spread.plug_in)
        metrics["configuration_entropy_expected"].append(spread.expected)
    return metrics


def _over_batches(nats: list[float], length: int, target: float) -> Estimate:
    values = torch.tensor(nats, dtype=torch.float64) / length - target
    return Estimate(values.mean().item(), (values.std() / math.sqrt(len(nats))).item())
