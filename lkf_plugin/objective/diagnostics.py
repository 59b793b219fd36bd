"""Is the latent alive? Scalars that are logged beside every mixture loss."""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.kernel import batch_router_entropy, entropy


def dead_threshold(num_components: int) -> float:
    """Prior weight below which a component counts as dead: 1 / (10 M)."""
    return 1.0 / (10 * num_components)


def latent_diagnostics(logw_BM: Tensor, gamma_BM: Tensor) -> dict[str, Tensor]:
    """Entropies (nats) of router and responsibilities, and the number of dead components.

    * ``router_entropy``: E_b H(w | x), the ceiling of what the latent can carry on this batch
    * ``usage_entropy``: H(E_b w), low when the router has collapsed
    * ``gamma_entropy``: E_b H(gamma), how undecided the posterior is
    * ``dead_components``: components whose mean weight is below ``dead_threshold``
    """
    logw_BM = logw_BM.detach()
    mean_w_M = logw_BM.exp().mean(0)
    dead = (mean_w_M < dead_threshold(logw_BM.shape[1])).sum()
    return {
        "router_entropy": entropy(logw_BM).mean(),
        "usage_entropy": batch_router_entropy(logw_BM),
        "gamma_entropy": entropy(torch.log(gamma_BM)).mean(),
        "dead_components": dead.to(logw_BM.dtype),
    }
