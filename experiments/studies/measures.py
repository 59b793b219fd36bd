"""What is measured on a trained network of the two-time corpora.

Shape legend: B rows, L positions, M components. Unit: nats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from experiments.studies.recipe import Recipe
from experiments.studies.sampling import best_of_components, frozen_samples
from experiments.studies.training import corrupt, objective_of
from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.corpora.parity import Parity
from lkf_plugin.decode.noise import Stream
from lkf_plugin.information.laws import network_law
from lkf_plugin.information.sample_tc import (
    SHUFFLES,
    chain_total_correlation,
    draw_step,
    plug_in_total_correlation,
)
from lkf_plugin.information.state_average import PointInformation, information_at
from lkf_plugin.information.step import step_information
from lkf_plugin.latents.structure import in_double
from lkf_plugin.objective.objective import Corruption, Objective
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.train.seeding import derive_seed, seed_position

HELD_OUT = "held out"  # apart from every training step's draws
ROWS = 10_000
CHUNK = 1000  # rows per seed
SLICE = 50  # rows scored at once: small enough for a processor's cache
STEPS_J = (1, 2, 4, 8, 16, 32)
SAMPLES = 512
GRID = ((0.0, 0.25), (0.0, 0.5), (0.0, 0.75), (0.0, 1.0), (0.25, 0.5), (0.25, 1.0), (0.5, 1.0))


@torch.no_grad()
def paired_excess(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement | Parity, recipe: Recipe
) -> tuple[Estimate, Estimate]:
    """(held-out two-time loss, its excess over the exact optimum on the same draws).

    The optimum is that of M components for hidden agreement, and that of M = 1 for parity. The
    draws are the same for every model.
    """
    losses, gaps = [], []
    objective = objective_of(recipe)
    components = _reference(corpus, recipe)
    for chunk in range(ROWS // CHUNK):
        x1_BL = corpus.sample(CHUNK, derive_seed(0, HELD_OUT, chunk))
        seed_position(0, HELD_OUT, "noise", chunk)
        corruption = corrupt(objective, x1_BL, corpus.mask_id)
        loss_B = torch.cat([_transition_loss(backbone, objective, c) for c in _slices(corruption)])
        xt_BL, xs_BL, (t_B, s_B) = corruption.xt_BL, corruption.target_BL, corruption.times
        reference_B = corpus.log_reference(xs_BL, xt_BL, t_B.double(), s_B.double(), components)
        losses.append(loss_B)
        gaps.append(loss_B + reference_B)
    return _mean(torch.cat(losses)), _mean(torch.cat(gaps))


def _slices(corruption: Corruption) -> Iterator[Corruption]:
    """``SLICE`` rows after another."""
    c = corruption
    for first in range(0, len(c.xt_BL), SLICE):
        at = slice(first, first + SLICE)
        yield Corruption(
            c.xt_BL[at], c.target_BL[at], c.counted_BL[at], c.attention_BL[at], c.sigma_B[at],
            c.weight_B[at], tuple(time_B[at] for time_B in c.times),
        )  # fmt: skip


def _transition_loss(
    backbone: LatentKernelBackbone, objective: Objective, corruption: Corruption
) -> Tensor:
    """-log Psi(x_s | x_t) of each row, float64 [B]."""
    scores = objective.score(backbone, corruption)
    structure = backbone.structure
    ell_BGM = structure.blocks.sums(scores.logp_BML.double())
    return -structure.log_psi(in_double(scores.potentials), ell_BGM)


def _mean(values_S: Tensor) -> Estimate:
    return Estimate(values_S.mean().item(), (values_S.std() / math.sqrt(len(values_S))).item())


def optimum(corpus: HiddenAgreement | Parity, recipe: Recipe) -> float:
    """The exact loss that ``paired_excess`` measures against, in expectation."""
    return corpus.nll(_reference(corpus, recipe), recipe.t_max)


def _reference(corpus: HiddenAgreement | Parity, recipe: Recipe) -> int:
    """Components of the optimum: as many values as a level of the latents has; parity's is M = 1's.

    Beyond V components hidden agreement's optimum is the truth.
    """
    level = max(recipe.components, recipe.block_components)
    return level if isinstance(corpus, HiddenAgreement) else 1


def full_step(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement | Parity, recipe: Recipe
) -> PointInformation:
    """I and TC of the step from 0 to 1."""
    law = network_law(backbone, recipe.form)
    return information_at(law, corpus.sample, corpus.mask_id, 0.0, 1.0)


def measure_likelihood(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement | Parity, recipe: Recipe
) -> dict[str, Any]:
    """Loss, excess, and I and TC of the full transition: a row of Table hidden."""
    loss, excess = paired_excess(backbone, corpus, recipe)
    point = full_step(backbone, corpus, recipe)
    return {
        "nll": loss,
        "excess": excess,
        "optimum": optimum(corpus, recipe),
        "information": point.information,
        "total_correlation": point.total_correlation,
        "information_ceiling": point.information_ceiling,
        "total_correlation_ceiling": point.total_correlation_ceiling,
    }


def measure_excess(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement | Parity, recipe: Recipe
) -> dict[str, Any]:
    """Loss and excess alone, of any structure of latents."""
    loss, excess = paired_excess(backbone, corpus, recipe)
    return {"nll": loss, "excess": excess, "optimum": optimum(corpus, recipe)}


def measure_support(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement, recipe: Recipe
) -> dict[str, Any]:
    """In-support rate, recall and entropy of the value over J, one frozen component per sample."""
    rates, recalls, entropies = [], [], []
    for J in STEPS_J:
        x_GL, _ = frozen_samples(backbone, corpus.length, SAMPLES, J, seed=1, form=recipe.form)
        rates.append(rate_of(corpus.in_support(x_GL)))
        recalls.append(corpus.recall(x_GL))
        entropies.append(corpus.value_entropy(x_GL))
    exact = [corpus.few_step_validity(J, recipe.components) for J in STEPS_J]
    return {
        "J": list(STEPS_J),
        "in_support": rates,
        "in_support_exact": exact,
        "recall": recalls,
        "value_entropy": entropies,
        "samples": SAMPLES,
    }


def rate_of(hit_S: Tensor) -> Estimate:
    """A share with its binomial standard error."""
    rate = hit_S.double().mean().item()
    return Estimate(rate, math.sqrt(rate * (1 - rate) / len(hit_S)))


def measure_probe(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement | Parity, recipe: Recipe
) -> dict[str, Any]:
    """I and TC along (t, s) with the exact optimum beside them."""
    law = network_law(backbone, recipe.form)
    M = recipe.components
    points = []
    for t, s in GRID:
        step = information_at(law, corpus.sample, corpus.mask_id, t, s)
        points.append(
            {
                "t": t,
                "s": s,
                "information": step.information,
                "total_correlation": step.total_correlation,
                "information_exact": float(corpus.information(t, s, M)),
                "total_correlation_exact": float(corpus.captured_correlation(t, s, M)),
                "total_correlation_ceiling": step.total_correlation_ceiling,
            }
        )
    return {"points": points}


def measure_modes(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement, recipe: Recipe
) -> dict[str, Any]:
    """Frozen components one by one, the shuffle of k, and what selection does to diversity."""
    M, draws = recipe.components, 256
    component_G = torch.arange(M).repeat_interleave(draws)
    x_GL, _ = frozen_samples(
        backbone, corpus.length, M * draws, 1, 2, recipe.form, component_G=component_G
    )
    good_MG = corpus.in_support(x_GL).view(M, draws)
    # row k: share of each value among the tokens of component k
    share_MV = torch.nn.functional.one_hot(x_GL, corpus.values + 1).double()
    share_MV = share_MV.view(M, draws, corpus.length, -1).mean((1, 2))
    x_MGL = x_GL.view(M, draws, corpus.length)
    metrics: dict[str, Any] = {
        "value_share": share_MV[:, : corpus.values].tolist(),
        "in_support": [rate_of(good_G) for good_G in good_MG],
        "distinct_values": len(set(share_MV[:, : corpus.values].argmax(-1).tolist())),
        "component_chain_tc": [chain_total_correlation(x_GL) for x_GL in x_MGL],
    }
    metrics["shuffle"] = measure_shuffle(backbone, corpus, recipe)
    metrics["selection"] = measure_selection(backbone, corpus)
    return metrics


def measure_shuffle(
    backbone: LatentKernelBackbone,
    corpus: HiddenAgreement,
    recipe: Recipe,
    samples: int = 8192,
) -> dict[str, Any]:
    """Sample TC of the full transition under the three shuffles of k, and of independent tokens."""
    x_1L = torch.full((1, corpus.length), corpus.mask_id)
    logw_BM, logp_BMLV = network_law(backbone, recipe.form)(x_1L, 0.0, 1.0)
    generator = torch.Generator().manual_seed(3)
    figures: dict[str, Any] = {"samples": samples}
    for shuffle in SHUFFLES:
        x_SL = draw_step(logw_BM[0], logp_BMLV[0], samples, generator, shuffle)
        figures[f"chain_{shuffle}"] = chain_total_correlation(x_SL)
        figures[f"plug_in_{shuffle}"] = plug_in_total_correlation(x_SL)
    independent_SL = torch.randint(corpus.values, (samples, corpus.length), generator=generator)
    figures["plug_in_factorized"] = plug_in_total_correlation(independent_SL)
    figures["chain_factorized"] = chain_total_correlation(independent_SL)
    figures["estimator"] = step_information(logw_BM[0], logp_BMLV[0]).total_correlation
    return figures


def measure_selection(
    backbone: LatentKernelBackbone, corpus: HiddenAgreement, samples: int = 128
) -> dict[str, Any]:
    """Best of M at J = 1: the argmin of the NELBO against a draw from softmax(-NELBO)."""
    decoded = best_of_components(backbone, corpus.length, samples, 1, seed=5)
    scores_GC = decoded.score_GC
    assert scores_GC is not None
    asked = torch.Generator().manual_seed(int(Stream.SELECT))
    chosen_G = torch.multinomial(torch.softmax(-scores_GC, -1), 1, generator=asked).squeeze(-1)
    # the same chains again: a chain is a function of its sample, component and seed
    x_GL, _ = frozen_samples(backbone, corpus.length, samples, 1, seed=5, component_G=chosen_G)
    routed_GL, _ = frozen_samples(backbone, corpus.length, samples, 1, seed=5)
    figures: dict[str, Any] = {"samples": samples}
    for name, rows_GL in (("argmin", decoded.x_GL), ("softmax", x_GL), ("router", routed_GL)):
        figures[name] = {
            "in_support": rate_of(corpus.in_support(rows_GL)),
            "distinct_values": round(corpus.recall(rows_GL) * corpus.values),
            "value_entropy": corpus.value_entropy(rows_GL),
        }
    return figures
