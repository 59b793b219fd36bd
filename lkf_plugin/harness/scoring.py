"""Log-likelihoods of pieces under a run, in batches.

``nelbo``: minus the marginal NELBO, a bound, MDLM's ``val/nll`` of the continuation; ``few_step``:
minus the few-step NELBO at J; ``replay``: the exact log-likelihood of the J-step sampler whose
order is a function of the state (``likelihood.replay``).

Shape legend: R pieces, L positions.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import ValidationError
from torch import Tensor
from typing_extensions import Self

from lkf_plugin.decode.noise import mix
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.likelihood import nats_of_draws
from lkf_plugin.harness.pieces import Piece
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.likelihood.replay import RULES, find_rule, replay_and_greedy
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.settings.fields import Choice, Count, Group, Whole
from lkf_plugin.settings.sentences import mistake_of


class ScoringOptions(Group):
    """How a text is scored; ``--model_args`` by these names.

    Attributes:
        likelihood: ``nelbo``, ``few_step`` or ``replay``.
        draws: of (tau, mask) for ``nelbo``, of reveal patterns for ``few_step``.
        steps: J; 0 is as many as a piece asks for tokens. ``nelbo`` takes it for the greedy check.
        rule: of ``replay``, and of the greedy check.
        latent: ``redrawn`` in every step, or ``frozen`` at the start.
        seed: of all random numbers, which also depend on the context.
        batch_size: pieces at once.
    """

    likelihood: Annotated[str, Choice("nelbo", "few_step", "replay")] = "nelbo"
    draws: Count = 32
    steps: Whole = 0
    rule: Annotated[str, Choice(*RULES)] = "confidence"
    latent: Annotated[str, Choice("redrawn", "frozen")] = "redrawn"
    seed: Whole = 0
    batch_size: Count = 8

    @classmethod
    def read(cls, given: dict[str, Any]) -> Self:
        """Options from ``--model_args``.

        Raises:
            UserError: an unknown name or an unusable value.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            detail = error.errors(include_url=False, include_context=False)[0]
            raise UserError(mistake_of(detail, cls, "model_args").sentence) from error


class Score(Group):
    """Of one piece.

    Attributes:
        nats: log-likelihood.
        greedy: whether the sampler that always takes the likeliest token says it.
    """

    nats: float
    greedy: bool


class Scorer:
    """A run's log-likelihoods.

    Args:
        run: an LKF run (any structure, any M) with a clean-endpoint network.
        options: see there.
    """

    def __init__(self, run: LoadedRun, options: ScoringOptions) -> None:
        if run.config.model.type != "lkf" or run.config.loss.name == "two_time":
            raise UserError(
                "The harness scores runs of model=lkf with a clean-endpoint loss (M = 1 is MDLM): "
                f"this one has model.type={run.config.model.type}, loss={run.config.loss.name}."
            )
        self.run, self.options = run, options
        self.model = NetworkSteps(run.network())

    def scores(self, pieces: list[Piece], greedy: bool = True) -> list[Score]:
        """Scores in the order given; equal pieces have equal scores, whatever else is asked.

        Args:
            pieces: what is asked for.
            greedy: also replay the greedy sampler, where the likelihood does not do so by itself.
        """
        scores: list[Score] = []
        size = self.options.batch_size
        for first in range(0, len(pieces), size):
            scores += self._batch(pieces[first : first + size], greedy)
        return scores

    def _batch(self, pieces: list[Piece], greedy: bool) -> list[Score]:
        device = self.run.module.device
        x_RL = torch.stack([piece.x_L for piece in pieces]).to(device)
        free_RL = torch.stack([piece.free_L for piece in pieces]).to(device)
        seed_R = torch.stack([mix(self.options.seed, piece.key) for piece in pieces]).to(device)
        says_R = torch.zeros(len(pieces), dtype=torch.bool)
        if self.options.likelihood == "replay":
            nats_R, says_R = self._replayed(x_RL, free_RL)
        else:
            of = self._nelbo if self.options.likelihood == "nelbo" else self._few_step
            nats_R = of(x_RL, free_RL, seed_R)
            if greedy:
                says_R = self._replayed(x_RL, free_RL)[1]
        pairs = zip((-nats_R).tolist(), says_R.tolist(), strict=True)
        return [Score(nats=nats, greedy=says) for nats, says in pairs]

    def _nelbo(self, x_RL: Tensor, free_RL: Tensor, seed_R: Tensor) -> Tensor:
        draws = self.options.draws
        drawn = nats_of_draws(self.run, x_RL, free_RL, seed_R, draws)
        return torch.stack([one.marginal_B for one in drawn]).sum(0) / draws

    def _few_step(self, x_RL: Tensor, free_RL: Tensor, seed_R: Tensor) -> Tensor:
        total_R = torch.zeros(len(x_RL), dtype=torch.float64, device=x_RL.device)
        for count, row_A in self._by_steps(free_RL):
            nats = few_step_nelbo(
                self.model, x_RL[row_A], count, seed_R[row_A], free_RL[row_A], self.options.draws
            )
            total_R[row_A] = nats.redrawn_B if self.options.latent == "redrawn" else nats.frozen_B
        return total_R

    def _replayed(self, x_RL: Tensor, free_RL: Tensor) -> tuple[Tensor, Tensor]:
        total_R = torch.zeros(len(x_RL), dtype=torch.float64, device=x_RL.device)
        says_R = torch.zeros(len(x_RL), dtype=torch.bool, device=x_RL.device)
        rule = find_rule(self.options.rule)
        for count, row_A in self._by_steps(free_RL):
            nats, says_R[row_A] = replay_and_greedy(
                self.model, x_RL[row_A], count, rule, free_RL[row_A]
            )
            total_R[row_A] = nats.redrawn_B if self.options.latent == "redrawn" else nats.frozen_B
        return total_R, says_R

    def _by_steps(self, free_RL: Tensor) -> list[tuple[int, Tensor]]:
        """(J, rows that take J steps): at most one step a token."""
        asked_R = free_RL.sum(-1)
        if self.options.steps:
            asked_R = asked_R.clamp(max=self.options.steps)
        return [(int(J), (asked_R == J).nonzero()[:, 0]) for J in asked_R.unique()]
