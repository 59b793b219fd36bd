"""What the Hydra group ``decode`` may say, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typing_extensions import Self

from lkf_plugin.settings.fields import (
    Choice,
    Count,
    FieldType,
    Flag,
    Group,
    Name,
    Number,
    Positive,
    Whole,
    as_number,
)
from lkf_plugin.settings.sentences import read_group

SCORES = ("nelbo", "evidence")
SELECTORS = (*SCORES, "softmax", "centred", "random")


class Component(FieldType):
    """Who speaks."""

    def words(self) -> str:
        """What is allowed."""
        return "router, random, or a component's number from 0 on"

    def __call__(self, value: Any) -> str | int:
        """``router``, ``random`` or a number."""
        if value in ("router", "random"):
            return str(value)
        number = as_number(value)
        if number != int(number) or number < 0:
            raise ValueError(self.words())
        return int(number)


class DecodeOptions(Group):
    """Every knob of every policy; a policy reads the few that it names.

    Attributes:
        policy: name of a registered policy, ``mdlm`` or ``auto``.
        temperature: of the token draw; 1 is the model's law. The engine's, see ``DecodeRequest``.
        component: who speaks where one component does: ``router``, ``random`` or a number.
        selector: how one of several candidates is picked, see ``selectors``.
        score: what ``softmax``, ``centred`` and ``calibrated`` go by: ``nelbo`` or ``evidence``.
        score_draws: T, draws of (tau, mask) per NELBO score.
        select_temperature: of ``softmax``, nats per sequence, and ``calibrated``, nats per token.
        shared_noise: one noise stream for all candidates of a sample.
        min_prior: floor of a component's prior weight; None is 1 / (10 M).
        num_candidates: n noise streams of one component.
        calibration_samples: chains per component in the calibration pool.
        switch_step: ``deferred``: steps before the router's choice is final.
        probe_step: ``probe``: steps before the evidence is read.
        probe_report: ``probe``: run the losers on, to tell how often the full selector agrees.
    """

    policy: Name = "auto"
    temperature: Positive = 1.0
    component: Annotated[str | int, Component()] = "router"
    selector: Annotated[str, Choice(*SELECTORS)] = "nelbo"
    score: Annotated[str, Choice(*SCORES)] = "nelbo"
    score_draws: Count = 4
    select_temperature: Positive = 1.0
    shared_noise: Flag = False
    min_prior: Annotated[float | None, Number(low=0, high=1, null=True)] = None
    num_candidates: Count = 8
    calibration_samples: Count = 32
    switch_step: Whole = 1
    probe_step: Whole = 1
    probe_report: Flag = True

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """Options from a config group; a policy with further knobs reads its own subclass.

        Raises:
            UserError: an unknown key or an unusable value.
        """
        return read_group(cls, settings, "decode")

    @property
    def ranking(self) -> str | None:
        """The score behind the selector, or None for ``random``."""
        if self.selector in SCORES:
            return self.selector
        return None if self.selector == "random" else self.score

    @property
    def draws(self) -> int:
        """Network calls that the selector's score costs a candidate."""
        return self.score_draws if self.ranking == "nelbo" else 0
