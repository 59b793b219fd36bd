"""Who made the gain of a best-of-M decode: the mixture, or one component?

One component that writes what the judge finds easy (digits, lists) can carry a whole "mixture
gain". Neither the entropy of the samples nor the control of one component with M noise streams
shows it. What does: each component alone, its share among the picks, and the pick without the
favourite. All of it comes from the pool that was selected from; no further sampling is needed.

Shape legend: S samples, C candidates per sample, L positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lkf_plugin.decode.policy import Decoded
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.diversity import as_sequences, pooled_entropy
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.records.estimate import Estimate, jackknife_error, jackknife_groups

WITHOUT_FAVOURITE = "without_favourite"
ONE_FEWER = "one_fewer"


def attribution(
    samples: Decoded, quality: Quality, judged: int | None = None
) -> dict[str, Estimate]:
    """What stands beside a best-of-M figure.

    * ``share[k]``, ``share_entropy``: of the components among the picks (ceiling log M)
    * ``<metric>.solo[k]``: every finished chain of component k, picked or not
    * ``<metric>.without_favourite``, ``pooled_entropy.without_favourite``: the selector's pick
      when the component that it picks most has no candidates

    Args:
        samples: a pool whose candidate c is component c (best_of_m).
        quality: what judges.
        judged: chains per component that are judged; None is all.
    """
    candidates_SCL, score_SC = _pool(samples)
    exists_SC = score_SC.isfinite()
    M, S = exists_SC.shape[1], exists_SC.shape[0]
    estimates = {f"share[{k}]": _share(samples.component_G == k) for k in range(M)}
    estimates["share_entropy"] = share_entropy(samples.component_G, M)
    for k in range(M):
        chains = candidates_SCL[exists_SC[:, k], k][:judged]
        solo = quality.figure(chains) if len(chains) else None
        if solo is not None:
            estimates[f"{quality.metric}.solo[{k}]"] = solo
    favourite = int(torch.bincount(samples.component_G, minlength=M).argmax())
    estimates["favourite"] = Estimate(float(favourite), None, S)
    rest_SC = score_SC.clone()
    rest_SC[:, favourite] = torch.inf
    left_S = rest_SC.isfinite().any(-1)
    if left_S.all():
        estimates |= _pick(candidates_SCL, rest_SC, quality, WITHOUT_FAVOURITE)
    return estimates


def one_fewer(samples: Decoded, quality: Quality) -> dict[str, Estimate]:
    """The same pick among n - 1 noise streams: what ``without_favourite`` is compared with."""
    candidates_SCL, score_SC = _pool(samples)
    if score_SC.shape[1] < 2:
        return {}
    return _pick(candidates_SCL[:, :-1], score_SC[:, :-1], quality, ONE_FEWER)


def share_entropy(component_S: Tensor, num_components: int) -> Estimate:
    """Entropy of the components among the picks, nats; its error by a jackknife."""

    def entropy(chosen_S: Tensor) -> float:
        share = torch.bincount(chosen_S, minlength=num_components).double() / len(chosen_S)
        return -float(torch.xlogy(share, share).sum())

    group_S = torch.from_numpy(jackknife_groups(len(component_S)))
    groups = int(group_S[-1]) + 1
    error = None
    if groups > 1:
        error = jackknife_error([entropy(component_S[group_S != g]) for g in range(groups)])
    return Estimate(max(entropy(component_S), 0.0), error, len(component_S))


def advantage(mixture: float, control: float, higher_is_better: bool) -> float:
    """Relative gain of the mixture over its control; positive is better.

    For a perplexity 1 - mixture / control, as the paper counts it; for a valid fraction the
    difference.
    """
    if higher_is_better:
        return mixture - control
    return 1 - mixture / control


def changes_sign(whole: float, dropped: float) -> bool:
    """Whether an advantage is gone once one component is dropped: then it was that component's."""
    return whole > 0 >= dropped


def match_temperature(
    entropy_at: Callable[[float], float],
    target: float,
    at_one: float | None = None,
    low: float = 0.5,
    rounds: int = 2,
) -> float:
    """The sampling temperature in [low, 1] at which a control's pooled entropy meets ``target``.

    By the secant method from 1 and 0.9, since a pooled entropy is nearly straight in the
    temperature there; the end that is nearer where the target lies outside.

    Args:
        entropy_at: temperature -> pooled entropy of the control's samples, nats.
        target: pooled entropy of the mixture's picks.
        at_one: ``entropy_at(1)``, where it is known.
        low: the coldest that is tried.
        rounds: improvements, each at the cost of one call of ``entropy_at``.
    """
    last = (1.0, entropy_at(1.0) if at_one is None else at_one)
    if target >= last[1]:
        return 1.0
    temperature = 0.9
    for _ in range(rounds):
        here = (temperature, entropy_at(temperature))
        slope = (last[1] - here[1]) / (last[0] - here[0]) if last[0] != here[0] else 0.0
        if slope <= 0:
            break
        temperature = min(max(here[0] + (target - here[1]) / slope, low), 1.0)
        last = here
    return temperature


def pooled(ids_SL: Tensor) -> float:
    """Pooled unigram entropy of samples, nats."""
    return pooled_entropy(as_sequences(ids_SL)).value


def _pool(samples: Decoded) -> tuple[Tensor, Tensor]:
    if samples.candidates_GCL is None or samples.score_GC is None:
        raise UserError("Attribution needs the candidates of a policy that selects among them.")
    return samples.candidates_GCL, samples.score_GC


def _pick(
    candidates_SCL: Tensor, score_SC: Tensor, quality: Quality, suffix: str
) -> dict[str, Estimate]:
    ids_SL = candidates_SCL[torch.arange(len(score_SC)), score_SC.argmin(-1)]
    estimates = {f"pooled_entropy.{suffix}": pooled_entropy(as_sequences(ids_SL))}
    figure = quality.figure(ids_SL)
    if figure is not None:
        estimates[f"{quality.metric}.{suffix}"] = figure
    return estimates


def _share(chosen_S: Tensor) -> Estimate:
    share, n = chosen_S.double().mean().item(), len(chosen_S)
    return Estimate(share, math.sqrt(share * (1 - share) / n), n)
