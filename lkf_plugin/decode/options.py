"""What the Hydra group ``decode`` may say, with its defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from lkf_plugin.errors import UserError

SCORES = ("nelbo", "evidence")
SELECTORS = (*SCORES, "softmax", "centred", "random")


@dataclass(frozen=True)
class DecodeOptions:
    """Every knob of every policy; a policy reads the few that it names.

    Attributes:
        policy: name in ``registry.POLICIES``, ``mdlm`` or ``auto``.
        temperature: of the token draw; 1 is the model's law. The engine's, see ``DecodeRequest``.
        component: who speaks where one component does: ``router``, ``random`` or a number.
        selector: how one of several candidates is picked, see ``selectors``.
        score: what ``softmax``, ``centred`` and ``calibrated`` go by: ``nelbo`` or ``evidence``.
        score_draws: T, draws of (tau, mask) a NELBO score.
        select_temperature: of ``softmax``, nats per sequence, and ``calibrated``, nats per token.
        shared_noise: one noise stream for all candidates of a sample.
        min_prior: floor of a component's prior weight; None is 1 / (10 M).
        num_candidates: n noise streams of one component.
        calibration_samples: chains a component in the calibration pool.
        switch_step: ``deferred``: steps before the router's choice is final.
        probe_step: ``probe``: steps before the evidence is read.
        probe_report: ``probe``: run the losers on, to tell how often the full selector agrees.
    """

    policy: str = "auto"
    temperature: float = 1.0
    component: str | int = "router"
    selector: str = "nelbo"
    score: str = "nelbo"
    score_draws: int = 4
    select_temperature: float = 1.0
    shared_noise: bool = False
    min_prior: float | None = None
    num_candidates: int = 8
    calibration_samples: int = 32
    switch_step: int = 1
    probe_step: int = 1
    probe_report: bool = True

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """Options from a config group; a policy with further knobs reads its own subclass.

        Raises:
            UserError: an unknown key or an unusable value.
        """
        known = {one.name for one in dataclasses.fields(cls)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise UserError(f"decode.{unknown[0]} is unknown: take one of {', '.join(known)}.")
        options = cls(**settings)
        options._check()
        return options

    def _check(self) -> None:
        for key, allowed in (("selector", SELECTORS), ("score", SCORES)):
            if getattr(self, key) not in allowed:
                raise UserError(
                    f"decode.{key}={getattr(self, key)} is unknown: take "
                    f"{', '.join(allowed[:-1])} or {allowed[-1]}."
                )
        for key in ("score_draws", "num_candidates", "calibration_samples"):
            if getattr(self, key) < 1:
                raise UserError(f"decode.{key}={getattr(self, key)} must be at least 1.")
        for key in ("switch_step", "probe_step"):
            if getattr(self, key) < 0:
                raise UserError(f"decode.{key}={getattr(self, key)} must not be negative.")
        for key in ("temperature", "select_temperature"):
            if not getattr(self, key) > 0:
                raise UserError(f"decode.{key}={getattr(self, key)} must be above 0.")
        if self.min_prior is not None and not 0 <= self.min_prior <= 1:
            raise UserError(f"decode.min_prior={self.min_prior} must lie between 0 and 1.")

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
