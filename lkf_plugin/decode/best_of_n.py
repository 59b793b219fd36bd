"""best_of_n: n noise streams of one component, or of a model that has only one.

The control of best_of_m: the same budget, selector and judge, without the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.candidates import run_and_select
from lkf_plugin.decode.commit import choose_component
from lkf_plugin.decode.policy import Decoded, DecodeRequest


def best_of_n(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """The best of ``num_candidates`` chains of one component: n (J + T) or n J calls.

    ``settings``: those of ``run_and_select``, ``num_candidates``, and ``component`` as in
    ``choose_component``, drawn once a sample.
    """
    n = settings["num_candidates"]
    component_GC = choose_component(request, settings["component"])[:, None].expand(-1, n)
    every_GC = torch.ones(component_GC.shape, dtype=torch.bool, device=component_GC.device)
    return run_and_select(request, component_GC, every_GC, {**settings, "shared_noise": False})
