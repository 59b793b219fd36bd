"""How one of several finished candidates is picked.

* ``nelbo``: the lowest Monte Carlo mixture NELBO, T draws shared by the candidates of one sample
* ``evidence``: the highest log-probability of the tokens that a chain revealed along its own path
* ``softmax``: a draw from softmax(-score / temperature), which keeps modes that argmin drops
* ``centred``: the lowest score above the component's own mean on a calibration pool, so that no
  component wins for being easy
* ``random``: any candidate, unscored; the control

Shape legend: G samples, C candidates per sample, M components.
"""

from __future__ import annotations

from torch import Tensor

from lkf_plugin.decode.calibration import component_means
from lkf_plugin.decode.candidates import Pool
from lkf_plugin.decode.noise import Stream, uniforms
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest


def run_and_select(
    request: DecodeRequest, component_GC: Tensor, exists_GC: Tensor, options: DecodeOptions
) -> Decoded:
    """Runs every candidate that exists and delivers the selector's pick.

    ``random`` needs no scores, so that only its pick is run (J calls).
    """
    if options.selector == "random":
        weight_GC = exists_GC.double()
        pick_G = request.draw_component(weight_GC, Stream.SELECT)
        only_GC = exists_GC.new_zeros(exists_GC.shape).scatter(-1, pick_G[:, None], True)
        pool = Pool.start(request, component_GC, only_GC, options.shared_noise)
        pool.finish()
        return pool.deliver(pick_G, None, float(request.engine.num_steps))
    pool = Pool.start(request, component_GC, exists_GC, options.shared_noise)
    pool.finish()
    score_GC = pool.nelbo(options.draws) if options.draws else pool.cost()
    if options.selector == "centred":
        mean_GM = component_means(request, options)
        score_GC = score_GC - mean_GM.gather(-1, component_GC)
    pick_G = pick(request, score_GC, options)
    calls = (request.engine.num_steps + options.draws) * pool.rows_a_sample
    return pool.deliver(pick_G, score_GC, calls, options.draws * pool.rows_a_sample)


def pick(request: DecodeRequest, score_GC: Tensor, options: DecodeOptions) -> Tensor:
    """Candidate of each sample, [G]; of equal scores the first."""
    if options.selector == "softmax":
        # Gumbel's trick: a candidate's noise is its own, whatever other candidates there are
        u_GC = uniforms(request.seed_G, 0, score_GC.shape[1], Stream.SELECT)
        score_GC = score_GC / options.select_temperature + u_GC.log().neg().log()
    return score_GC.argmin(-1)
