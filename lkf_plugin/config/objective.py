"""``loss``: one class per objective."""

from __future__ import annotations

from typing import Annotated

from lkf_plugin.settings.fields import (
    Choice,
    Count,
    Fraction,
    Group,
    Inside,
    Name,
    Number,
    Real,
    Share,
)
from lkf_plugin.token_head.logprob import BACKENDS

AUTO, MDLM_HEAD = "auto", "mdlm"


class NoRouter(Number):
    """Zero, since there is nothing to regularise."""

    def words(self) -> str:
        return "0: loss=mdlm has no router"


class Loss(Group):
    """What all objectives share."""

    name: Name
    chunk_rows: Count
    token_head: Annotated[str, Choice(AUTO, MDLM_HEAD, *BACKENDS)]
    lambda_ent: Real
    lambda_lb: Real


class MdlmLoss(Loss):
    """MDLM's loss; it has one order of operations and no router."""

    token_head: Annotated[str, Choice(AUTO, MDLM_HEAD)]
    lambda_ent: Annotated[float, NoRouter(low=0, high=0)]
    lambda_lb: Annotated[float, NoRouter(low=0, high=0)]


class MixtureLoss(Loss):
    """The clean-endpoint mixture likelihood (paper, Eq. x0loss)."""

    backward: Annotated[str, Choice("dense", "two_phase", "drawn")]
    threshold: Fraction
    drawn: Count
    keep_above: Share


class TwoTimeLoss(Loss):
    """The two-time objective."""

    form: Annotated[str, Choice("analytic", "learned")]
    t_max: Inside


LOSSES: dict[str, type[Loss]] = {"mdlm": MdlmLoss, "mixture": MixtureLoss, "two_time": TwoTimeLoss}
