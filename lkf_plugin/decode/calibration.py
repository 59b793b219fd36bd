"""What each component's chains score on average, from samples that are not the ones delivered.

The calibration chains start where the delivered ones do, but from seeds of their own: the same for
every batch and run, so that a calibration is a function of the model, J and the start.

Shape legend: G samples, M components, S calibration samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.decode.candidates import Pool
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import DecodeRequest

_SEED = 0x5EED_CA1B


def component_means(request: DecodeRequest, options: DecodeOptions) -> Tensor:
    """Mean score of each component at each sample's start, [G, M], nats per sequence.

    The score is ``options.score``; lower is better. Made once per start, kept in
    ``request.memory``.
    """
    starts_UL, which_G = torch.unique(request.x_GL, dim=0, return_inverse=True)
    means = [_means_at(request, start_L, options) for start_L in starts_UL]
    return torch.stack(means)[which_G]


def _means_at(request: DecodeRequest, start_L: Tensor, options: DecodeOptions) -> Tensor:
    engine = request.engine
    key = (
        tuple(start_L.tolist()),
        *(engine.num_steps, engine.eps, engine.temperature),
        *(options.score, options.score_draws, options.shared_noise, options.calibration_samples),
    )
    if key not in request.memory:
        samples, M = options.calibration_samples, engine.network.sequence_components
        seed_S = mix(_SEED, torch.arange(samples, device=start_L.device))
        calibration = DecodeRequest(engine, start_L.expand(samples, -1), seed_S)
        component_SM = torch.arange(M, device=start_L.device).expand(samples, M)
        every_SM = torch.ones_like(component_SM, dtype=torch.bool)
        pool = Pool.start(calibration, component_SM, every_SM, options.shared_noise)
        pool.finish()
        score_SM = pool.nelbo(options.score_draws) if options.score == "nelbo" else pool.cost()
        request.memory[key] = score_SM.mean(0)
    return request.memory[key]
