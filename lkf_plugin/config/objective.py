"""``loss``: the settings of every objective, and of MDLM's own loss."""

from __future__ import annotations

from typing import Annotated

from lkf_plugin.config.variants import Variants
from lkf_plugin.objective.objective import AUTO, MDLM_HEAD, OBJECTIVES, LossSettings
from lkf_plugin.settings.fields import Choice, Number


class NoRouter(Number):
    """Zero, since there is nothing to regularise."""

    def words(self) -> str:
        """What is allowed."""
        return "0: loss=mdlm has no router"


class MdlmLoss(LossSettings):
    """MDLM's loss; it has one order of operations and no router."""

    token_head: Annotated[str, Choice(AUTO, MDLM_HEAD)]
    lambda_ent: Annotated[float, NoRouter(low=0, high=0)]
    lambda_lb: Annotated[float, NoRouter(low=0, high=0)]


LOSSES: Variants[LossSettings] = Variants(
    OBJECTIVES, lambda objective: objective.Settings, {"mdlm": MdlmLoss}
)
