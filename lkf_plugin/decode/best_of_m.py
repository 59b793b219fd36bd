"""best_of_m: one chain a component, the model's own score picks (paper, Alg. bestofm)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.candidates import run_and_select
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.objective.diagnostics import dead_threshold


def living_components(prior_GM: Tensor, min_prior: float | None) -> Tensor:
    """Components that may give candidates, bool [G, M].

    A component whose prior is close to zero never learned to speak; its low-entropy salad would
    win the selection. The likeliest component of a sample always lives.
    """
    floor = dead_threshold(prior_GM.shape[1]) if min_prior is None else min_prior
    living_GM = prior_GM.exp() >= floor
    return living_GM.scatter(-1, prior_GM.argmax(-1, keepdim=True), True)


def best_of_m(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """The best chain of the living components: M (J + T) calls by NELBO, M J by evidence.

    ``settings``: those of ``run_and_select``, and ``min_prior``, the floor of
    ``living_components``.
    """
    living_GM = living_components(request.prior(), settings["min_prior"])
    components = torch.arange(living_GM.shape[1], device=living_GM.device)
    return run_and_select(request, components.expand_as(living_GM), living_GM, settings)
