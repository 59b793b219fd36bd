"""What the likelihood of a few-step sampler asks of a model.

Shape legend: R rows, M components, L positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from lkf_plugin.latents.structure import Structure


class StepScores(NamedTuple):
    """Potentials of the latents, and log P_i^k(target_i) [R, M, L] (0 where not counted)."""

    potentials: Any
    logp_RML: Tensor


class StepModel(Protocol):
    """A sampler's step at states x_t.

    Attributes:
        structure: of the latents.
        mask_index: the mask's id.
        holds_latent: whether a latent may be held over the steps, or is always drawn anew.
    """

    structure: Structure[Any]
    mask_index: int
    holds_latent: bool

    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        """Scores of ``target_RL`` at the counted, masked positions of ``x_RL``.

        Args:
            x_RL: states, ``mask_index`` where masked.
            target_RL: clean tokens.
            counted_RL: bool; what this step reveals.
            tau: MDLM time of the states.
        """
        ...


class StepLawModel(StepModel, Protocol):
    """The same with whole laws, for samplers that look at them before they reveal."""

    def law(
        self, x_RL: Tensor, tau: float, component_R: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        """Potentials, and log P_i^k [R, M, L, V]; only masked positions are read.

        Args:
            x_RL, tau: states and their time.
            component_R: the one component that is asked of each row, [R, 1, L, V]; None: all M.
        """
        ...
