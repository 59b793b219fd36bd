"""best_of_n: n noise streams of one component, or of a model that has only one.

The control of best_of_m: the same budget, selector and judge, without the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.commit import choose_component
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy
from lkf_plugin.decode.selectors import run_and_select


@policy("best_of_n")
def best_of_n(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """The best of ``num_candidates`` chains of one component: n (J + T) or n J calls.

    ``settings``: ``num_candidates``, ``selector`` and what it needs, and ``component`` as in
    ``choose_component``, drawn once per sample.
    """
    options = DecodeOptions.read(settings).model_copy(update={"shared_noise": False})
    n = options.num_candidates
    component_GC = choose_component(request, options)[:, None].expand(-1, n)
    every_GC = torch.ones(component_GC.shape, dtype=torch.bool, device=component_GC.device)
    return run_and_select(request, component_GC, every_GC, options)
