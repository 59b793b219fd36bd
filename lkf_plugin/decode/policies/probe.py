"""probe: run every component for j steps, then go on with the best evidence only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.candidates import Pool
from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy
from lkf_plugin.decode.selectors import pick
from lkf_plugin.errors import UserError


@policy("probe")
def probe(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain of J steps is left after ``probe_step`` steps: M j + (J - j) calls.

    With ``probe_report`` the losers run on beside it, unseen by the method's own count, and
    ``facts`` tells how often the full selector (``nelbo`` or ``evidence`` of finished candidates)
    would have picked the same, and the mean rank correlation of both over the candidates.

    Raises:
        UserError: a selector that the probe cannot be compared with.
    """
    options = DecodeOptions.read(settings)
    living_GM = living_components(request.prior(), options.min_prior)
    components_GM = torch.arange(living_GM.shape[1], device=living_GM.device).expand_as(living_GM)
    pool = Pool.start(request, components_GM, living_GM, options.shared_noise)
    num_steps = request.engine.num_steps
    step = min(options.probe_step, num_steps)
    pool.run_to(step)
    early_GC = pool.cost()
    chosen_G = early_GC.argmin(-1)
    calls = pool.rows_a_sample * step + num_steps - step
    if not options.probe_report:
        pool.keep(torch.zeros_like(living_GM).scatter(-1, chosen_G[:, None], True))
        pool.finish()
        return pool.deliver(chosen_G, None, calls)
    if options.selector not in ("nelbo", "evidence"):
        raise UserError(
            f"decode.selector={options.selector} gives no ranking to compare a probe with: take "
            "nelbo or evidence."
        )
    pool.finish()
    full_GC = pool.nelbo(options.draws) if options.draws else pool.cost()
    agreement = (pick(request, full_GC, options) == chosen_G).double().mean().item()
    decoded = pool.deliver(chosen_G, None, calls, options.draws * pool.rows_a_sample)
    facts = {"probe_agreement": agreement}
    several_G = living_GM.sum(-1) > 1
    if several_G.any():
        rho_G = rank_correlation(early_GC[several_G], full_GC[several_G])
        facts["probe_rank_correlation"] = rho_G.mean().item()
    return dataclasses.replace(decoded, facts=facts)


def rank_correlation(a_GC: Tensor, b_GC: Tensor) -> Tensor:
    """Spearman's rho of the finite entries of each row (two at least), float64 [G].

    Equal values share the mean of their ranks; a row whose values are all equal has rho 0.
    """
    exists_GC = a_GC.isfinite() & b_GC.isfinite()
    rank_a_GC, rank_b_GC = _centred_ranks(a_GC, exists_GC), _centred_ranks(b_GC, exists_GC)
    spread_G = (rank_a_GC.square().sum(-1) * rank_b_GC.square().sum(-1)).sqrt()
    return torch.where(spread_G > 0, (rank_a_GC * rank_b_GC).sum(-1) / spread_G.clamp_min(1e-12), 0)


def _centred_ranks(value_GC: Tensor, exists_GC: Tensor) -> Tensor:
    """Ranks among the existing entries less their mean; 0 elsewhere."""
    both_GCC = exists_GC[:, :, None] & exists_GC[:, None, :]
    below_GC = ((value_GC[:, None, :] < value_GC[:, :, None]) & both_GCC).sum(-1)
    equal_GC = ((value_GC[:, None, :] == value_GC[:, :, None]) & both_GCC).sum(-1)
    rank_GC = below_GC.double() + (equal_GC.double() - 1) / 2
    mean_G1 = (exists_GC.sum(-1, keepdim=True).double() - 1) / 2
    return torch.where(exists_GC, rank_GC - mean_G1, 0.0)
