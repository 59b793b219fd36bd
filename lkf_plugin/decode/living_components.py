"""The floor under which a component counts as dead and gives no candidates."""

from __future__ import annotations

from torch import Tensor

from lkf_plugin.objective.diagnostics import dead_threshold


def living_components(prior_GM: Tensor, min_prior: float | None) -> Tensor:
    """Components that may give candidates, bool [G, M].

    A component whose prior is close to zero never learned to speak; its low-entropy salad would
    win the selection. The likeliest component of a sample always lives.

    Args:
        prior_GM: log w at the start states.
        min_prior: the floor; None is 1 / (10 M).
    """
    floor = dead_threshold(prior_GM.shape[1]) if min_prior is None else min_prior
    living_GM = prior_GM.exp() >= floor
    return living_GM.scatter(-1, prior_GM.argmax(-1, keepdim=True), True)
