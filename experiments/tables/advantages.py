"""How far a mixture is ahead of its M = 1 control, and whether one component made the gain."""

from __future__ import annotations

from experiments.tables.lookup import Lookup
from lkf_plugin.evaluate.attribution import ONE_FEWER, WITHOUT_FAVOURITE, advantage, changes_sign
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record


def best_of_n(n: int) -> str:
    """Row of n noise streams picked by NELBO."""
    return f"best_of_n.n{n}.nelbo"


def control(lookup: Lookup, M: int, J: int) -> Record | None:
    """The M = 1 model with as many noise streams as the mixture has components."""
    return lookup.find(1, best_of_n(M), J)


def advantages(
    lookup: Lookup, mixture: Record | None, single: Record | None
) -> tuple[float | None, float | None]:
    """(advantage, advantage without the favourite component) over the M = 1 control."""
    whole = gain_over(lookup, lookup.figure(mixture), lookup.figure(single))
    dropped = gain_over(
        lookup,
        lookup.figure(mixture, f"{lookup.metric}.{WITHOUT_FAVOURITE}"),
        lookup.figure(single, f"{lookup.metric}.{ONE_FEWER}"),
    )
    return whole, dropped


def gain_over(lookup: Lookup, ours: Estimate | None, theirs: Estimate | None) -> float | None:
    """How much better ours is, whichever way the metric points; None where one is missing."""
    if ours is None or theirs is None:
        return None
    return advantage(ours.value, theirs.value, lookup.higher_is_better)


def is_flagged(lookup: Lookup, record: Record | None) -> bool:
    """Whether a best-of-M figure's advantage over its M = 1 control is one component's."""
    if record is None or record.policy != "best_of_m" or record.steps is None:
        return False
    single = control(lookup, record.num_components, record.steps)
    whole, dropped = advantages(lookup, record, single)
    return whole is not None and dropped is not None and changes_sign(whole, dropped)
