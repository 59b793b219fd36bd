"""Who made the gain in likelihood of a few-step sampler: the mixture, or one component?

The bounds of ``likelihood.few_step`` once more with each component taken away, its probability left
to the others of its level (``Structure.without``), and with each latent per sequence taken away
where blocks have latents too. The network is asked once; only the law of the latents changes. What
a component is worth is the paired difference.

Shape legend: B sequences, L positions. Unit: nats per token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.few_step import held_out, step_model
from lkf_plugin.evaluate.likelihood import ratio_per_token
from lkf_plugin.latents.structure import Structure, without_sequence_latent
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.step_model import StepModel, StepScores
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.runs.load import LoadedRun

WHOLE = ""  # nothing taken away
Change = Callable[[Any], Any]  # potentials -> potentials


class Asked:
    """A ``StepModel`` whose answers to one batch are kept, and given under another law.

    Args:
        model: that is asked once for each step.
        change: of the potentials.
        answers: those that are known, by the time of the step.
    """

    def __init__(
        self,
        model: StepModel,
        change: Change | None = None,
        answers: dict[float, StepScores] | None = None,
    ) -> None:
        self.model, self.change = model, change
        self.answers = {} if answers is None else answers
        self.structure, self.mask_index = model.structure, model.mask_index
        self.holds_latent = model.holds_latent

    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        """As the model's; the states of a step are the same under every law."""
        if tau not in self.answers:
            self.answers[tau] = self.model.score(x_RL, target_RL, counted_RL, tau)
        scores = self.answers[tau]
        if self.change is None:
            return scores
        return scores._replace(potentials=self.change(scores.potentials))

    def under(self, change: Change) -> Asked:
        """The same answers under another law."""
        return Asked(self.model, change, self.answers)


def drops(structure: Structure[Any]) -> dict[str, Change]:
    """Everything that can be taken away: ``without[c]``, ``without_sequence[k]``."""
    changes: dict[str, Change] = {}
    if structure.block_components != 1 or structure.sequence_components > 1:
        for c in range(structure.components):
            changes[f"without[{c}]"] = partial(structure.without, component=c)
    if structure.has_blocks and structure.sequence_components > 1:
        for k in range(structure.sequence_components):
            changes[f"without_sequence[{k}]"] = partial(without_sequence_latent, k=k)
    return changes


def drop_one(
    run: LoadedRun,
    steps: Sequence[int],
    num_sequences: int,
    seed: int = 0,
    processes: Processes = ALONE,
) -> dict[str, Estimate]:
    """Bounds of the first held-out sequences with nothing and with each part taken away.

    Args:
        run: the model, in eval mode with the weights that are to be measured.
        steps: the J.
        num_sequences: how many at most.
        seed: of the reveal patterns.
        processes: that share the batches.

    Returns:
        ``nll@J`` (latents redrawn), ``nll@J.without[c]``, ``nll@J.without_sequence[k]``, and the
        paired increases ``worth@J[c]`` and ``worth@J.sequence[k]``.

    Raises:
        UserError: nothing can be taken away.
    """
    model = step_model(run)
    changes = drops(model.structure)
    if not changes:
        raise UserError("Nothing can be taken away from a model with one component.")
    x_BL, free_BL, tokens_B, seed_B = held_out(run, num_sequences, seed)
    at_once = int(run.config.loader.eval_batch_size)

    def of_batch(job: tuple[int, int]) -> dict[str, np.ndarray]:
        num_steps, first = job
        here = slice(first, first + at_once)
        batch = (x_BL[here], num_steps, seed_B[here], free_BL[here])
        asked = Asked(model)
        laws = {WHOLE: asked} | {name: asked.under(change) for name, change in changes.items()}
        return {
            name: few_step_nelbo(law, *batch, batch_rows=at_once).redrawn_B.cpu().numpy()
            for name, law in laws.items()
        }

    jobs = [(J, first) for J in steps for first in range(0, len(x_BL), at_once)]
    known = dict(zip(jobs, processes.dealt(jobs, of_batch, "drop one"), strict=True))
    estimates: dict[str, Estimate] = {}
    for num_steps in steps:
        parts = [nats for (J, _), nats in known.items() if J == num_steps]
        totals = {name: np.concatenate([nats[name] for nats in parts]) for name in parts[0]}
        whole_B = totals.pop(WHOLE)
        estimates[f"nll@{num_steps}"] = ratio_per_token(whole_B, tokens_B)
        for name, total_B in totals.items():
            estimates |= _of_drop(num_steps, name, total_B, whole_B, tokens_B)
    return estimates


def _of_drop(
    num_steps: int, name: str, total_B: np.ndarray, whole_B: np.ndarray, tokens_B: np.ndarray
) -> dict[str, Estimate]:
    level = name.removeprefix("without").replace("_sequence", ".sequence")
    return {
        f"nll@{num_steps}.{name}": ratio_per_token(total_B, tokens_B),
        f"worth@{num_steps}{level}": ratio_per_token(total_B - whole_B, tokens_B),
    }
