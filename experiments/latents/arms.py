"""Which runs stand side by side on a corpus, and how each is trained.

On AgreeText every run is trained from the start by its own recipe. On text one factorised model
is trained first, and all others, itself among them, go on from it for the same CPU seconds: what
a step costs differs, so that the steps do. They are those that took equal seconds on the machine
of the kept records; every record says what its own run took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.compare.methods import Row
from experiments.demo.cells import CLAUSES, RUNS
from lkf_plugin.corpora import agreetext
from lkf_plugin.train.cpu_seconds import CpuSeconds

FIRST = "M1"  # what text starts from
CLOCK = f"+callbacks.cpu_seconds._target_={CpuSeconds.__module__}.{CpuSeconds.__qualname__}"


@dataclass(frozen=True)
class Study:
    """A corpus and its runs.

    Attributes:
        rows: every run by the name of its folder, in the order of the tables.
        steps: values of J.
        sequences: held-out ones, spread evenly over what there is.
        samples: of a cell; 0 draws none.
        policies: by which samples are drawn.
        baseline: the run that differences are taken from.
        seeds: of training.
        optimum: nats per token that no model can beat, where it is known.
    """

    rows: Mapping[str, Row]
    steps: tuple[int, ...]
    sequences: int
    samples: int
    policies: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...] = (1,)
    optimum: float | None = None


def _on(experiment: str, steps: int, *overrides: str) -> Row:
    """A run that goes on from the factorised one."""
    length = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // 2}")
    return Row((f"experiment={experiment}", *length, *overrides, CLOCK), start=FIRST)


def _structure(latent: str, K: int, m: int, length: int | str) -> tuple[str, ...]:
    sizes = (f"model.num_components={K}", f"model.block_components={m}")
    return (f"model.latent={latent}", *sizes, f"model.block_length={length}", "init.latents=em")


AGREETEXT = Study(
    rows={name: Row((*overrides, CLOCK)) for name, overrides in RUNS.items()},
    steps=(1, 2, 4, 8, 32),
    sequences=1000,
    samples=512,
    policies=("commit",),
    baseline="M1",
    seeds=(1, 2, 3),
    optimum=agreetext.nelbo_optimum(CLAUSES),
)
CHARACTERS = Study(
    rows={
        FIRST: Row(("experiment=sotu-characters", CLOCK)),
        "M1-on": _on("sotu-characters-on", 1000),
        "M8": _on("sotu-characters-on", 690, "model.num_components=8", "loss.backward=drawn"),
        "tree": _on("sotu-characters-on", 510, *_structure("tree", 1, 8, 4)),
        "chain": _on("sotu-characters-on", 490, *_structure("chain", 1, 8, 1)),
    },
    steps=(1, 2, 4, 8, 16, 32),
    sequences=512,
    samples=256,
    policies=("redraw",),
    baseline="M1-on",
)
STUDIES = {"agreetext": AGREETEXT, "characters": CHARACTERS}
