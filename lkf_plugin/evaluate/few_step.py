"""Likelihood of the few-step samplers of a run: ``mode=ppl_eval eval.steps=[1,2,4,8]``.

See ``likelihood.few_step`` for what is bounded. All models see the same reveal patterns of the same
sequences, so that differences of the per-sequence values, which the report keeps, are paired.

Shape legend: B sequences, L positions. Unit: nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from lkf_plugin.decode.noise import mix
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.likelihood import ratio_per_token
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.likelihood.step_model import StepModel
from lkf_plugin.methods.method import METHODS, method_name
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.runs.load import LoadedRun, use_average


class FewStep(NamedTuple):
    """Bounds of one run.

    Attributes:
        estimates: ``nll@J`` (latents redrawn in every step) and, where latents can be held,
            ``nll_frozen@J`` (drawn once), nats per token.
        sequences: J -> the two kinds of values, nats per sequence, and ``tokens``.
    """

    estimates: dict[str, Estimate]
    sequences: dict[str, Any]


def step_model(run: LoadedRun) -> StepModel:
    """What bounds this run's sampler.

    Raises:
        UserError: its sampler does not reveal masks by SUBS.
    """
    method = method_name(run.config)
    if run.config.model.type == "lkf" and run.config.loss.name != "two_time":
        return NetworkSteps(run.network())
    own = METHODS[method].step_model if method in METHODS else None
    if own is not None and run.config.T == 0:
        return own(run.module)
    raise UserError(
        f"eval.steps bounds samplers that reveal masks in J steps from clean-endpoint networks in "
        f"continuous time: leave it out for {method}, loss={run.config.loss.name}, "
        f"T={run.config.T}."
    )


def few_step(
    run: LoadedRun,
    steps: Sequence[int],
    num_sequences: int,
    seed: int = 0,
    paths: int = 1,
    progress: bool = True,
) -> FewStep:
    """Bounds of the first held-out sequences at each number of steps.

    Args:
        run: the model, in eval mode with the weights that are to be measured.
        steps: the J.
        num_sequences: how many at most.
        seed: of the reveal patterns.
        paths: patterns per sequence.
        progress: a bar over the numbers of steps.
    """
    model = step_model(run)
    rows = run.prepared.valid
    assert rows is not None
    chunk = rows[: min(num_sequences, len(rows))]
    device = next(run.module.backbone.parameters()).device
    x_BL = torch.as_tensor(chunk["input_ids"]).to(device)
    free_BL = torch.as_tensor(chunk["attention_mask"]).to(device) > 0
    tokens_B = free_BL.sum(-1).cpu().numpy()
    seed_B = mix(seed, torch.arange(len(x_BL), device=device))
    batch_rows = int(run.config.loader.eval_batch_size)
    found = FewStep({}, {"tokens": tokens_B.tolist()})
    bar = tqdm(steps, desc="few-step likelihood", leave=False, disable=None if progress else True)
    for num_steps in bar:
        nats = few_step_nelbo(
            model, x_BL, num_steps, seed_B, free_BL, paths, batch_rows=batch_rows
        )
        kinds = ("", "_frozen") if model.holds_latent else ("",)
        for kind, nats_B in zip(kinds, nats, strict=False):
            name = f"nll{kind}@{num_steps}"
            found.estimates[name] = _per_token(nats_B, tokens_B)
            found.sequences[name] = nats_B.tolist()
    return found


def few_step_of_validation(run: LoadedRun, num_sequences: int) -> FewStep | None:
    """By ``eval.steps``, after a validation; None where it asks for nothing.

    The weight average, if there is one, takes the weights' place for good.
    """
    steps = run.config.eval.get("steps")
    if not steps:
        return None
    use_average(run.module)
    return few_step(run, list(steps), num_sequences, int(run.config.seed))


def _per_token(nats_B: Tensor, tokens_B: np.ndarray) -> Estimate:
    return ratio_per_token(nats_B.cpu().numpy(), tokens_B)
