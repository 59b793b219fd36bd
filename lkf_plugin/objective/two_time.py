"""The two-time objective: likelihood of the next state x_s given x_t (paper, Eq. nll).

The next state of a masked position is a token or still [MASK], so the outcomes are V + 1. Two
forms of the component's law:

* ``learned``: one softmax over all V + 1 outcomes, as the paper describes it;
* ``analytic``: [MASK] keeps exactly 1 - p_rev and the network gives only the values.

Shape legend: B sequences, M components, L positions. Unit: nats a transition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corruption import reveal_chance, sigma_from_kept
from lkf_plugin.errors import UserError
from lkf_plugin.objective.components import ComponentScores, HeadSettings, component_scores

FORMS = ("learned", "analytic")


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
