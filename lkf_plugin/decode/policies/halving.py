"""halving: prune the weakest candidates by their evidence while they run (successive halving)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.candidates import Pool
from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy


def schedule(num_steps: int, num_components: int) -> list[tuple[int, int]]:
    """(step, candidates left from there on): max(2, M / 4) at J / 4 and one at J / 2.

    Steps are rounded up: with fewer than four of them, the first prunes to one.
    """
    return [(-(-num_steps // 4), max(2, num_components // 4)), (-(-num_steps // 2), 1)]


def keep_best(cost_GC: Tensor, count: int) -> Tensor:
    """The ``count`` alive candidates of the lowest cost, bool [G, C]; of equals the first."""
    order_GC = cost_GC.argsort(dim=-1, stable=True)
    best_GC = torch.zeros_like(cost_GC, dtype=torch.bool).scatter(-1, order_GC[:, :count], True)
    return best_GC & cost_GC.isfinite()


@policy("halving")
def halving(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain of J steps is left: 12 / 24 / 48 / 96 calls at M = 8 and J = 4 / 8 / 16 / 32.

    ``settings``: ``shared_noise``, ``min_prior``. With one stream for all candidates they reveal
    the same positions, so that their evidence counts the same number of tokens.
    """
    options = DecodeOptions.read(settings)
    living_GM = living_components(request.prior(), options.min_prior)
    components_GM = torch.arange(living_GM.shape[1], device=living_GM.device).expand_as(living_GM)
    pool = Pool.start(request, components_GM, living_GM, options.shared_noise)
    num_steps, calls, begin = request.engine.num_steps, 0.0, 0
    for step, count in schedule(num_steps, living_GM.shape[1]):
        calls += (step - begin) * pool.rollouts.alive_R.sum().item() / living_GM.shape[0]
        pool.run_to(step)
        pool.keep(keep_best(pool.cost(), count))
        begin = step
    survivor_G = pool.cost().argmin(-1)
    pool.finish()
    return pool.deliver(survivor_G, None, calls + num_steps - begin)
