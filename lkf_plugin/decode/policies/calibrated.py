"""calibrated: one chain per sample, its component drawn by what components proved to be worth.

Ours. The paper finds that the router is no judge of quality, and leaves open to choose components
on a calibration sample. Each component's chains are scored once, on samples that are not delivered;
then k ~ w_k exp(-c_k / temperature) with c_k its mean cost a generated token. An endless
temperature is ``commit``; towards zero only the best component is left: the temperature walks from
the diverse to the faithful end, at J calls per sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.calibration import component_means
from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.commit import run_committed
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy


def calibrated_weights(request: DecodeRequest, options: DecodeOptions) -> Tensor:
    """Weights of the components of each sample, float64 [G, M]; the dead have none."""
    logw_GM = request.prior()
    masked_GL = request.x_GL == request.engine.network.mask_index
    cost_GM = component_means(request, options) / masked_GL.sum(-1, keepdim=True).clamp_min(1)
    living_GM = living_components(logw_GM, options.min_prior)
    logit_GM = logw_GM - cost_GM / options.select_temperature
    return torch.softmax(logit_GM.masked_fill(~living_GM, -torch.inf), dim=-1)


@policy("calibrated")
def calibrated(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain per sample, J calls; the calibration is made once per model and start.

    ``settings``: ``score`` (``evidence`` or ``nelbo``), ``select_temperature`` in nats per token,
    ``calibration_samples``, ``min_prior``.
    """
    options = DecodeOptions.read(settings)
    weight_GM = calibrated_weights(request, options)
    return run_committed(request, request.draw_component(weight_GM))
