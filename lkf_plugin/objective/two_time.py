"""The two-time objective: likelihood of the next state x_s given x_t (paper, Eq. nll).

The next state of a masked position is a token or still [MASK], so the outcomes are V + 1. Two
forms of the component's law:

* ``learned``: one softmax over all V + 1 outcomes, as the paper describes it;
* ``analytic``: [MASK] keeps exactly 1 - p_rev and the network gives only the values.

Shape legend: B sequences, M components, L positions. Unit: nats per transition.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corruption import (
    draw_two_times,
    reveal_chance,
    reveal_tokens,
    sigma_from_kept,
)
from lkf_plugin.errors import UserError
from lkf_plugin.kernel import log_mixture, responsibilities
from lkf_plugin.objective.components import ComponentScores, HeadSettings, component_scores
from lkf_plugin.objective.diagnostics import latent_diagnostics
from lkf_plugin.objective.draws import Draws
from lkf_plugin.objective.objective import (
    MDLM_HEAD,
    OBJECTIVES,
    Corruption,
    LossSettings,
    Objective,
    Value,
)
from lkf_plugin.settings.fields import Choice, Inside

FORMS = ("analytic", "learned")


def two_time_scores(
    backbone: LatentKernelBackbone,
    xt_BL: Tensor,
    xs_BL: Tensor,
    counted_BL: Tensor,
    t_B: Tensor,
    s_B: Tensor,
    form: str,
    head: HeadSettings,
) -> ComponentScores:
    """Component scores of the transition x_t -> x_s.

    Args:
        xt_BL, xs_BL: the two states, ``mask_index`` where masked.
        counted_BL: bool; positions masked in ``xt_BL`` and not padding.
        t_B, s_B: their times in the paper's clock.
        form: ``learned`` or ``analytic``.
        head: how the head is computed (gathered backends only).

    Raises:
        UserError: unknown form.
    """
    sigma_B = sigma_from_kept(t_B)
    if form == "learned":
        return component_scores(
            backbone, xt_BL, xs_BL, counted_BL, sigma_B, head, s_B, mask_is_outcome=True
        )
    if form != "analytic":
        raise UserError(f"loss.form={form} is unknown: take one of {', '.join(FORMS)}.")
    revealed_BL = counted_BL & (xs_BL != backbone.mask_index)
    scores = component_scores(backbone, xt_BL, xs_BL, revealed_BL, sigma_B, head, s_B)
    p_B = reveal_chance(t_B, s_B).to(scores.logp_BML.dtype)[:, None]
    stays_BL = torch.where(counted_BL & ~revealed_BL, torch.log1p(-p_B), 0.0)
    reveals_BL = torch.where(revealed_BL, torch.log(p_B), 0.0)
    return scores._replace(logp_BML=scores.logp_BML + (stays_BL + reveals_BL)[:, None])


class TwoTimeSettings(LossSettings):
    """The law of a masked position, and the times."""

    form: Annotated[str, Choice(*FORMS)]
    t_max: Inside


@OBJECTIVES.add("two_time")
class TwoTime(Objective):
    """The mixture likelihood of x_s given x_t, unweighted (paper, Eq. nll)."""

    Settings = TwoTimeSettings

    @classmethod
    def check(cls, loss: Any, network: Any, process: Any) -> None:
        """It needs a network that is told both times, and a head that knows [MASK]."""
        if network.trunk != "native" or not process.time_conditioning:
            raise UserError(
                "loss=two_time tells the network both times: set model.trunk=native and "
                "time_conditioning=true."
            )
        if loss.token_head == MDLM_HEAD and loss.form == "learned":
            raise UserError(
                "loss.token_head=mdlm knows no [MASK] outcome, which loss.form=learned needs: "
                "take loss.token_head=auto."
            )

    def corrupt(self, x0_BL: Tensor, attention_BL: Tensor, draws: Draws) -> Corruption:
        """Times t < s in the paper's clock, x_t, and x_s from it."""
        t_B, s_B = draw_two_times(len(x0_BL), x0_BL.device, self.settings["t_max"])
        xt_BL = draws.hide(x0_BL, 1 - t_B[:, None])
        xs_BL = reveal_tokens(xt_BL, x0_BL, reveal_chance(t_B, s_B)[:, None], draws.mask_index)
        counted_BL = (xt_BL == draws.mask_index) & (attention_BL > 0)
        ones_B = torch.ones_like(t_B)
        return Corruption(
            xt_BL, xs_BL, counted_BL, attention_BL, sigma_from_kept(t_B), ones_B, (t_B, s_B)
        )

    def score(self, backbone: LatentKernelBackbone, corruption: Corruption) -> ComponentScores:
        """Scores of the transition by ``loss.form``."""
        c, (t_B, s_B) = corruption, corruption.times
        form = self.settings["form"]
        return two_time_scores(
            backbone, c.xt_BL, c.target_BL, c.counted_BL, t_B, s_B, form, self.head
        )

    def loss(self, scores: ComponentScores, corruption: Corruption) -> Value:
        """Mean over the transitions; a sequence's term is spread evenly over its tokens."""
        ell_BM = scores.logp_BML.sum(-1)
        nll_B = -log_mixture(scores.logw_BM, ell_BM)
        loss = nll_B.mean()
        diagnostics: dict[str, Tensor] = {}
        if self.num_components > 1:
            gamma_BM = responsibilities(scores.logw_BM, ell_BM).detach()
            diagnostics = latent_diagnostics(scores.logw_BM, gamma_BM)
            diagnostics["two_time_nll"] = loss.detach()
        tokens_B1 = corruption.attention_BL.sum(-1, keepdim=True).clamp_min(1)
        nlls_BL = nll_B.detach()[:, None] / tokens_B1 * corruption.attention_BL
        return Value(loss, nll_B, nlls_BL, self.penalty(scores.logw_BM), diagnostics)
