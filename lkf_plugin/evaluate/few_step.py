"""Likelihood of the few-step samplers of a run: ``mode=ppl_eval eval.steps=[1,2,4,8]``.

See ``likelihood.few_step`` for what is bounded, and ``likelihood.replay`` for what is exact where
the state decides what is revealed next (``eval.replay``). All models see the same reveal patterns
of the same sequences, so that differences of the per-sequence values, which the report keeps, are
paired.

Shape legend: B sequences, L positions. Unit: nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from lkf_plugin.decode.noise import mix
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.likelihood import ratio_per_token
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.likelihood.replay import find_rule, replay
from lkf_plugin.likelihood.step_model import StepLawModel, StepModel
from lkf_plugin.methods.method import METHODS, method_name
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.runs.load import LoadedRun, use_average
from lkf_plugin.runs.processes import join


class FewStep(NamedTuple):
    """Bounds of one run.

    Attributes:
        estimates: ``nll@J`` (latents redrawn in every step) and, where latents can be held,
            ``nll_frozen@J`` (drawn once), nats per token; of a replay ``nll_replay@J`` and
            ``nll_replay_frozen@J``.
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


def with_law(model: StepModel, run: LoadedRun) -> StepLawModel:
    """The model, whose steps have whole laws, which a replay reads.

    Raises:
        UserError: they have none.
    """
    if hasattr(model, "law"):
        return cast(StepLawModel, model)
    raise UserError(
        f"eval.replay={run.config.eval.replay} needs the whole law of a step, which "
        f"{method_name(run.config)} draws by a latent of its own: leave it out."
    )


def held_out(
    run: LoadedRun, num_sequences: int, seed: int
) -> tuple[Tensor, Tensor, np.ndarray, Tensor]:
    """The first held-out sequences: ids and what counts [B, L], tokens and a seed for each, [B]."""
    rows = run.prepared.valid
    assert rows is not None
    chunk = rows[: min(num_sequences, len(rows))]
    device = next(run.module.backbone.parameters()).device
    x_BL = torch.as_tensor(chunk["input_ids"]).to(device)
    free_BL = torch.as_tensor(chunk["attention_mask"]).to(device) > 0
    tokens_B = free_BL.sum(-1).cpu().numpy()
    seed_B = mix(seed, torch.arange(len(x_BL), device=device))
    return x_BL, free_BL, tokens_B, seed_B


def few_step(
    run: LoadedRun,
    steps: Sequence[int],
    num_sequences: int,
    seed: int = 0,
    paths: int = 1,
    progress: bool = True,
    processes: Processes = ALONE,
    rule: str | None = None,
) -> FewStep:
    """Bounds of the first held-out sequences at each number of steps.

    Args:
        run: the model, in eval mode with the weights that are to be measured.
        steps: the J.
        num_sequences: how many at most.
        seed: of the reveal patterns.
        paths: patterns per sequence.
        progress: a bar over the batches and numbers of steps.
        processes: that share the batches, each of which is the same for any number of them.
        rule: of ``likelihood.replay``, for exact likelihoods under its order as well.
    """
    model = step_model(run)
    x_BL, free_BL, tokens_B, seed_B = held_out(run, num_sequences, seed)
    batch_rows = int(run.config.loader.eval_batch_size)
    names = ["nll@{}", "nll_frozen@{}"] if model.holds_latent else ["nll@{}"]
    by_law = None if rule is None else with_law(model, run)
    names += [] if by_law is None else ["nll_replay@{}", "nll_replay_frozen@{}"]

    def of_batch(job: tuple[int, int]) -> list[list[float]]:
        first, J = job
        part = slice(first, first + batch_rows)
        x_RL, free_RL = x_BL[part], free_BL[part]
        seed_R = seed_B[part]
        both = few_step_nelbo(model, x_RL, J, seed_R, free_RL, paths, batch_rows=batch_rows)
        nats = list(both if model.holds_latent else both[:1])
        if by_law is not None and rule is not None:
            nats += replay(by_law, x_RL, J, find_rule(rule), free_RL)
        return [nats_R.tolist() for nats_R in nats]

    jobs = [(first, J) for first in range(0, len(x_BL), batch_rows) for J in steps]
    title = "few-step likelihood" if progress else None
    known = dict(zip(jobs, processes.dealt(jobs, of_batch, title), strict=True))
    bounds = FewStep({}, {"tokens": tokens_B.tolist()})
    for J in steps:
        parts = [known[first, J] for first in range(0, len(x_BL), batch_rows)]
        for kind, name in enumerate(names):
            nats_B = [value for part in parts for value in part[kind]]
            bounds.estimates[name.format(J)] = ratio_per_token(np.array(nats_B), tokens_B)
            bounds.sequences[name.format(J)] = nats_B
    return bounds


def few_step_of_validation(run: LoadedRun, num_sequences: int) -> FewStep | None:
    """By ``eval.steps``, after a validation, by all its processes; None where nothing is asked for.

    The weight average, if there is one, takes the weights' place for good.
    """
    steps = run.config.eval.get("steps")
    if not steps:
        return None
    use_average(run.module)
    rule = run.config.eval.get("replay")
    with join() as processes:
        seed = int(run.config.seed)
        return few_step(run, list(steps), num_sequences, seed, processes=processes, rule=rule)
