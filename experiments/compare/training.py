"""How the rows of a comparison are trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.compare.methods import Row
from experiments.runner import Run, compose_settings
from experiments.studies.perturbation import perturbed_start


def run_of(
    out: Path,
    rows: Mapping[str, Row],
    name: str,
    seed: int,
    steps: int | None = None,
    perturb: bool = False,
) -> Run:
    """The training run of a row, in ``out/name``.

    Args:
        out: folder of the comparison.
        rows: all rows by name.
        name: the row.
        seed: of the training.
        steps: instead of the recipe's.
        perturb: whether it starts from weights moved by one last bit.
    """
    row = rows[name]
    overrides = [*row.overrides, f"seed={seed}"]
    if steps is not None:
        interval = compose_settings(row.overrides).trainer.val_check_interval
        every = min(steps, interval)  # at least one validation, for best.ckpt
        overrides += [f"trainer.max_steps={steps}", f"trainer.val_check_interval={every}"]
    if perturb:
        overrides += perturbed_start(seed)
    start = None if row.start is None else run_of(out, rows, row.start, seed, steps, perturb)
    return Run(name, out / name, tuple(overrides), start)
