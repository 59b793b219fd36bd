"""What the tree must show on AgreeText, for every seed that was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.latents.arms import AGREETEXT
from experiments.latents.tables import ENTROPY, Measured
from lkf_plugin.data.corpus import VALID

VALID_AT_ONE = 0.90
ENTROPY_WITHIN = 0.1  # nats of perfect samples' configuration entropy
BOUND_WITHIN = 0.01  # nats per token of H / L
TREE = "tree"


def verdicts(runs: Sequence[Measured]) -> Iterator[tuple[str, float, bool]]:
    """(what is asked, what was measured, whether it holds) of each tree.

    Args:
        runs: of the study ``agreetext``; trees are compared with the others of their seed.
    """
    for tree in (run for run in runs if run.arm == TREE):
        own = f"seed {tree.seed}"
        sample, bound = tree.samples[1][0], tree.likelihood.value("nll@1")
        valid, entropy = sample.value(VALID), sample.value(ENTROPY)
        perfect = sample.value(f"{ENTROPY}_of_as_many_perfect")
        assert bound is not None and valid is not None and AGREETEXT.optimum is not None
        yield f"{own}: valid at J=1 at least {VALID_AT_ONE}", valid, valid >= VALID_AT_ONE
        apart = float("inf") if entropy is None or perfect is None else abs(entropy - perfect)
        yield f"{own}: entropy within {ENTROPY_WITHIN} of perfect", apart, apart <= ENTROPY_WITHIN
        excess = bound - AGREETEXT.optimum
        yield f"{own}: bound at J=1 within {BOUND_WITHIN} of H / L", excess, excess <= BOUND_WITHIN
        for other in (run for run in runs if run.arm != TREE and run.seed == tree.seed):
            above = [(tree.nats(J) - other.nats(J)).mean().item() for J in AGREETEXT.steps]
            worst = max(above)
            yield f"{own}: bound at no J above that of {other.arm}", worst, worst <= 0


def render_targets(runs: Sequence[Measured]) -> str:
    """A line for each target."""
    lines = [
        f"  {'kept  ' if kept else 'MISSED'} {what} ({value:.4f})"
        for what, value, kept in verdicts(runs)
    ]
    return "\n".join(lines)
