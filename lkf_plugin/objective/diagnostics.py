"""Is the latent alive? Scalars that are logged beside every mixture loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.kernel import entropy
from lkf_plugin.latents.structure import Structure, detached


def dead_threshold(num_components: int) -> float:
    """Prior weight below which a component counts as dead: 1 / (10 M)."""
    return 1.0 / (10 * num_components)


def latent_diagnostics(
    structure: Structure[Any], potentials: Any, gamma_BGM: Tensor
) -> dict[str, Tensor]:
    """Entropies (nats) of the latents and their responsibilities, and the dead components.

    * ``router_entropy``: E_b H(z | x), the ceiling of what the latents can carry on this batch
    * ``usage_entropy``: entropy of their use averaged over batch and groups, low after a collapse
    * ``gamma_entropy``: E H(gamma) per group, how undecided the posterior is
    * ``dead_components``: components whose mean weight is below ``dead_threshold``
    """
    p = detached(potentials)
    mean_w_M = structure.marginals(p).exp().mean((0, 1))
    dead = (mean_w_M < dead_threshold(structure.components)).sum()
    return {
        "router_entropy": structure.entropy(p).mean(),
        "usage_entropy": structure.usage_entropy(p),
        "gamma_entropy": entropy(torch.log(gamma_BGM)).mean(),
        "dead_components": dead.to(mean_w_M.dtype),
    }
