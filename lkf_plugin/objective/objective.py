"""What a training objective is: corrupt a text, score it, add up.

An objective is one file that registers itself; ``loss.name`` in a YAML of configs/loss names it::

    @OBJECTIVES.add("mixture")
    class Mixture(Objective): ...

Shape legend: B sequences, L positions, M components. Unit: nats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.latents.structure import Structure
from lkf_plugin.objective.components import ComponentScores, HeadSettings
from lkf_plugin.objective.draws import Draws
from lkf_plugin.registry import Registry
from lkf_plugin.settings.fields import Choice, Count, Group, Name, Real
from lkf_plugin.token_head.logprob import BACKENDS

AUTO, MDLM_HEAD = "auto", "mdlm"  # of loss.token_head


@dataclass(frozen=True)
class Corruption:
    """One draw of the forward process for a batch.

    Attributes:
        xt_BL: what the network sees.
        target_BL: what it must explain where ``counted_BL``.
        counted_BL: bool; positions that the loss is about.
        attention_BL: the batch's attention mask; its sum is the number of tokens.
        sigma_B: what the network is told of the noise.
        weight_B: weight of each sequence's term.
        times: further times that an objective needs, by its own convention.
    """

    xt_BL: Tensor
    target_BL: Tensor
    counted_BL: Tensor
    attention_BL: Tensor
    sigma_B: Tensor
    weight_B: Tensor
    times: tuple[Tensor, ...] = ()


class Value(NamedTuple):
    """An objective of a batch.

    Attributes:
        loss: 0-dim with gradient, nats per token (two-time: per transition).
        nll_B: each sequence's term, weighted.
        nlls_BL: terms that the likelihood metrics add up, detached.
        penalty: the regulariser in the loss's unit, with gradient; added in training.
        diagnostics: scalars to log beside the loss, by name.
    """

    loss: Tensor
    nll_B: Tensor
    nlls_BL: Tensor
    penalty: Tensor | float
    diagnostics: Mapping[str, Tensor]


class LossSettings(Group):
    """What the settings of all objectives share."""

    name: Name
    chunk_rows: Count
    token_head: Annotated[str, Choice(AUTO, MDLM_HEAD, *BACKENDS)]
    lambda_ent: Real
    lambda_lb: Real


class Objective(ABC):
    """Base of the objectives.

    ``Settings`` is what the group ``loss`` may say; an objective with knobs of its own extends it.

    Args:
        settings: the Hydra group ``loss``.
        structure: law of the latents; its ``components`` are M.
    """

    Settings: ClassVar[type[LossSettings]] = LossSettings

    def __init__(self, settings: Mapping[str, Any], structure: Structure[Any]) -> None:
        self.settings = settings
        self.structure = structure
        self.num_components = structure.components
        self.head = HeadSettings.resolve(
            settings["token_head"], settings["chunk_rows"], self.is_mdlm(structure.components)
        )

    @classmethod  # noqa: B027
    def check(cls, loss: Any, network: Any, process: Any) -> None:
        """Refuses settings that exclude each other.

        Args:
            loss: typed settings, an instance of ``Settings``.
            network: those of the group ``model``.
            process: those outside every group.

        Raises:
            UserError: one sentence that says what to set.
        """

    @classmethod
    def is_mdlm(cls, num_components: int) -> bool:
        """Whether this is MDLM's own loss at this M, to be computed in its order of operations."""
        return False

    @abstractmethod
    def corrupt(self, x0_BL: Tensor, attention_BL: Tensor, draws: Draws) -> Corruption:
        """A draw of the forward process.

        Args:
            x0_BL: clean tokens.
            attention_BL: 1 on tokens, 0 on padding.
            draws: where times and masks come from.
        """

    @abstractmethod
    def score(self, backbone: LatentKernelBackbone, corruption: Corruption) -> ComponentScores:
        """Potentials of the latents and the token log-probabilities of every component."""

    @abstractmethod
    def loss(self, scores: ComponentScores, corruption: Corruption) -> Value:
        """The objective as a function of the scores alone."""

    def train(self, backbone: LatentKernelBackbone, corruption: Corruption) -> Value:
        """``loss`` of ``score``; an objective with a cheaper backward pass overrides this."""
        return self.loss(self.score(backbone, corruption), corruption)

    def penalty(self, potentials: Any) -> Tensor | float:
        """R of the router (paper, Eq. reg), nats per sequence; none at M = 1 or at zero weight."""
        lambdas = self.settings["lambda_ent"], self.settings["lambda_lb"]
        if self.num_components == 1 or not any(lambdas):
            return 0.0
        return self.structure.regularizer(potentials, *lambdas)


OBJECTIVES: Registry[type[Objective]] = Registry("objective", "lkf_plugin.objective")
