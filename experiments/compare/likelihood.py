"""Likelihood of the held-out texts, the same way for every row."""

from __future__ import annotations

import torch

from lkf_plugin.data import valid_loader
from lkf_plugin.methods.method import method_of
from lkf_plugin.records.estimate import Estimate, mean_and_error
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.seeding import seed_position


def is_exact(run: LoadedRun) -> bool:
    """Whether the figure is the likelihood itself, not a bound that draws of noise estimate."""
    return method_of(run.config).exact


@torch.no_grad()
def held_out_nats(run: LoadedRun, passes: int, seed: int) -> Estimate:
    """NELBO (AR: exact) in nats per token with its standard error.

    A text's values over the passes are averaged first; texts are the independent unit. Every text
    must be full, as those of AgreeText and of windows are.

    Args:
        run: the trained model.
        passes: draws of time and noise per text; an exact likelihood needs one.
        seed: of the draws.
    """
    passes = 1 if is_exact(run) else passes
    per_text = torch.zeros(0, dtype=torch.float64)
    for index in range(passes):
        nats = []
        batches = valid_loader(run.prepared, batch_size=run.config.loader.eval_batch_size)
        for i, data in enumerate(batches):
            assert data["attention_mask"].all(), "a text with padding has fewer tokens"
            seed_position(seed, "compare", index, i)
            losses = run.module._loss(data["input_ids"], data["attention_mask"])
            nats.append(losses.nlls.double().mean(-1))
        found = torch.cat(nats) / passes
        per_text = found if index == 0 else per_text + found
    return mean_and_error(per_text.numpy())
