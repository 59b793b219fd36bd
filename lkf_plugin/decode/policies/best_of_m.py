"""best_of_m: one chain per component, the model's own score picks (paper, Alg. bestofm)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy
from lkf_plugin.decode.selectors import run_and_select


@policy("best_of_m")
def best_of_m(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """The best chain of the living components: M (J + T) calls by NELBO, M J by evidence.

    ``settings``: ``selector`` and what it needs (see ``selectors``), ``shared_noise``,
    ``min_prior``.
    """
    options = DecodeOptions.read(settings)
    living_GM = living_components(request.prior(), options.min_prior)
    components = torch.arange(living_GM.shape[1], device=living_GM.device)
    return run_and_select(request, components.expand_as(living_GM), living_GM, options)
