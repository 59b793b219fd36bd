"""Likelihood of held-out texts by a method's own loss, the same way for every method."""

from __future__ import annotations

import numpy as np
import torch

from lkf_plugin.data import valid_loader
from lkf_plugin.evaluate.likelihood import ratio_per_token
from lkf_plugin.methods.method import method_of
from lkf_plugin.records.estimate import Estimate, mean_and_error
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.seeding import seed_position


def is_exact(run: LoadedRun) -> bool:
    """Whether the figure is the likelihood itself, not a bound that draws of noise estimate."""
    return method_of(run.config).exact


@torch.no_grad()
def held_out_nats(run: LoadedRun, passes: int, seed: int, sequences: int | None = None) -> Estimate:
    """NELBO (AR: exact) in nats per token with its standard error.

    A text's values over the passes are averaged first; texts are the independent unit. Padding
    does not count.

    Args:
        run: the trained model.
        passes: draws of time and noise per text; an exact likelihood needs one.
        seed: of the draws.
        sequences: the first so many; None is all.
    """
    passes = 1 if is_exact(run) else passes
    device = next(run.module.backbone.parameters()).device
    per_text = tokens = np.zeros(0)
    for index in range(passes):
        nats: list[torch.Tensor] = []
        counts: list[torch.Tensor] = []
        batches = valid_loader(run.prepared, batch_size=run.config.loader.eval_batch_size)
        for i, data in enumerate(batches):
            left = None if sequences is None else sequences - sum(len(one) for one in counts)
            if left == 0:
                break
            ids, mask = (data[name].to(device) for name in ("input_ids", "attention_mask"))
            seed_position(seed, "compare", index, i)
            losses = run.module._loss(ids, mask)
            weights = losses.token_mask.double()
            nats.append((losses.nlls.double() * weights).sum(-1)[:left].cpu())
            counts.append(weights.sum(-1)[:left].cpu())
        tokens = torch.cat(counts).numpy()
        drawn = torch.cat(nats).numpy() / passes
        per_text = drawn if index == 0 else per_text + drawn
    if bool((tokens == tokens[0]).all()):
        return mean_and_error(per_text / tokens)
    return ratio_per_token(per_text, tokens)
