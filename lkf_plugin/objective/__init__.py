"""Training objectives and the marginal NELBO, as functions of log-probabilities."""

from __future__ import annotations

from lkf_plugin.objective.components import ComponentScores, HeadSettings
from lkf_plugin.objective.draws import Draws, HostDraws, PlainDraws
from lkf_plugin.objective.objective import OBJECTIVES, Corruption, Objective, Value

__all__ = [
    "OBJECTIVES",
    "ComponentScores",
    "Corruption",
    "Draws",
    "HeadSettings",
    "HostDraws",
    "Objective",
    "PlainDraws",
    "Value",
]
