"""The demo's table, made from its records alone, and its samples as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from experiments.demo.cells import CLAUSES, STEPS_J, by_row
from experiments.demo.promises import BEST, ONE, ONE_BEST, TREE
from experiments.runner import compose_settings
from lkf_plugin.corpora import agreetext
from lkf_plugin.data.corpus import VALID
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record

ENTROPY = "configuration_entropy"


def render_table(records: Sequence[Record], perturbed: bool = False) -> str:
    """Markdown: valid fraction (entropy of the configuration) by row and J.

    Args:
        records: of every cell.
        perturbed: whether training started from weights moved by one last bit.
    """
    rows = by_row(records)
    head = ["valid fraction (configuration entropy, nats)", "calls", *(f"J={J}" for J in STEPS_J)]
    lines = []
    for label, M in (("closed form, M=1", 1), ("closed form, M=8 frozen", 8)):
        curve = [agreetext.few_step_validity(J, CLAUSES, M, adaptive=M > 1) for J in STEPS_J]
        lines.append([label, "J", *(f"{share:.3f}" for share in curve)])
    for row, own in rows.items():
        calls = "8(J+4)" if row in (ONE_BEST, BEST) else "J"
        lines.append([row, calls, *map(_cell, own.values())])
    worst = max(one.metrics[VALID].se or 0.0 for own in rows.values() for one in own.values())
    facts = _facts(rows) | ({"start": "moved by one last bit"} if perturbed else {})
    return (
        f"{markdown_table(head, lines)}\n\n"
        "Entropy: of (topic, numbers) among the valid samples, beside what as many perfect samples "
        f"would show. Standard errors are at most {worst:.3f}. "
        f"{'; '.join(f'{key} {value}' for key, value in facts.items())}.\n"
    )


def _cell(record: Record) -> str:
    entropy, perfect = (record.value(f"{ENTROPY}{end}") for end in ("", "_of_as_many_perfect"))
    shown = "-" if entropy is None else f"{entropy:.1f} of {perfect:.1f}"
    return f"{record.value(VALID):.3f} ({shown})"


def _facts(rows: Mapping[str, Mapping[int, Record]]) -> dict[str, Any]:
    """What every figure of the demo depends on."""
    single, mixture, tree = (next(iter(rows[row].values())) for row in (ONE, BEST, TREE))
    recipe, on = compose_settings(["experiment=demo"]), mixture.machine
    trained = {"M=1": single, "M=8": mixture, "tree": tree}
    steps = [f"{one.labels['trained_steps']} ({name})" for name, one in trained.items()]
    return {
        "host": mixture.subject["host"],
        "machine": f"{on['cpu']}, {on['cores']} CPU cores",
        "torch": mixture.libraries["torch"],
        "corpus": f"AgreeText, {CLAUSES} clauses, {mixture.setting('length')} words",
        "tokenizer": f"words ({agreetext.MASK_ID} and the mask)",
        "wrap": mixture.labels["wrap"],
        "training steps": ", ".join(steps),
        "trunk": mixture.subject["model"]["trunk"],
        "batch": recipe.loader.global_batch_size,
        "ema": recipe.training.ema,
        "precision": mixture.precision,
        "selector": f"mixture NELBO, T={mixture.setting('decode.score_draws')}",
        "samples": mixture.samples,
        "seed": mixture.setting("seed"),
    }


def render_samples(samples: Mapping[str, Tensor], color: bool = False) -> str:
    """Samples at J = 2 by row, what is wrong marked."""
    lines = ["Samples at J = 2; words that disagree are marked:"]
    for row, x_GL in samples.items():
        lines.append(f"\n{row}")
        lines += [f"  {agreetext.render(x_L, mark=True, color=color)}" for x_L in x_GL]
    return "\n".join(lines) + "\n"
