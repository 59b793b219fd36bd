"""Which runs stand side by side on a corpus, and how each is trained.

On AgreeText every run is trained from the start by its own recipe. On text one factorised model
is trained first, and all others, itself among them, go on from it for the same CPU seconds: what
a step costs differs, so that the steps do. They are those that took equal seconds on the machine
of the kept records; every record says what its own run took.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from experiments import recipes
from experiments.compare.methods import Row
from experiments.demo.cells import CLAUSES, RUNS
from lkf_plugin.corpora import agreetext
from lkf_plugin.train.cpu_seconds import CpuSeconds

FIRST = "M1"  # what text starts from
AUTOREGRESSIVE = "ar"  # its likelihood is exact: a line beside the bounds
SAMPLED = "duo"  # changes tokens more than once, which has no bound at J: samples alone
ENDLESS = 1024  # steps at which hardly two of 64 positions fall into one: J -> infinity
CLOCK = f"+callbacks.cpu_seconds._target_={CpuSeconds.__module__}.{CpuSeconds.__qualname__}"
DROPPED = (1, 2, 4)  # J at which each component is taken away in turn


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
        sampling_seeds: of the samples of every cell; the first is that of the bounds as well.
        optimum: nats per token that no model can beat, where it is known; elsewhere the baseline
            is measured at ``ENDLESS`` steps as well.
        judge: of the samples, beside the share of known words.
    """

    rows: Mapping[str, Row]
    steps: tuple[int, ...]
    sequences: int
    samples: int
    policies: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...] = (1,)
    sampling_seeds: tuple[int, ...] = (1,)
    optimum: float | None = None
    judge: str | None = None

    def steps_of(self, arm: str) -> tuple[int, ...]:
        """Values of J at which an arm's sampler is bounded."""
        endless = arm == self.baseline and self.optimum is None
        return (*self.steps, ENDLESS) if endless else self.steps


def _on(experiment: str, steps: int, *overrides: str) -> Row:
    """A run that goes on from the factorised one."""
    length = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // 2}")
    return Row((f"experiment={experiment}", *length, *overrides, CLOCK), start=FIRST)


def _structure(latent: str, K: int, m: int, length: int | str) -> tuple[str, ...]:
    """Latents per block that EM has found, which need no regulariser of the router."""
    sizes = (f"model.num_components={K}", f"model.block_components={m}")
    free = ("loss.lambda_ent=0", "loss.lambda_lb=0")
    return (
        f"model.latent={latent}", *sizes, f"model.block_length={length}", "init.latents=em", *free
    )


AGREETEXT = Study(
    rows={
        **{name: Row((*overrides, CLOCK)) for name, overrides in RUNS.items()},
        AUTOREGRESSIVE: Row(("experiment=agreetext_ar", "trainer.max_steps=600", CLOCK)),
        SAMPLED: Row((*recipes.AGREETEXT["duo"].of_steps(1500).overrides, CLOCK)),
    },
    steps=(1, 2, 4, 8, 32),
    sequences=1000,
    samples=512,
    policies=("commit",),
    baseline="M1",
    seeds=(1, 2, 3),
    optimum=agreetext.nelbo_optimum(CLAUSES),
)
BLOCKS = dataclasses.replace(  # blocks that are clauses, and blocks that cut them or hold two
    AGREETEXT,
    rows={
        "M8": Row((*RUNS["M8"], CLOCK)),
        "tree": Row((*RUNS["tree"], CLOCK)),
        **{
            f"tree-{length}": Row((*RUNS["tree"], f"model.block_length={length}", CLOCK))
            for length in (4, 5, 16)
        },
        "chain-4": Row((*RUNS["tree"], "model.latent=chain", "model.block_length=4", CLOCK)),
    },
    baseline="M8",
    seeds=(1,),
)
SITES = dataclasses.replace(  # where the latent enters: whole blocks, or behind their attention
    AGREETEXT,
    rows={
        "tree": Row((*RUNS["tree"], CLOCK)),
        "tree-late": Row((*RUNS["tree"], "model.latent_site=after_attention", CLOCK)),
    },
    baseline="tree",
)


def _autoregressive(*overrides: str) -> Row:
    """From the start, for about what the first factorised model and a run after it cost."""
    length = ("trainer.max_steps=2000", "trainer.val_check_interval=500")
    return Row(("experiment=sotu_ar", *overrides, *length, CLOCK))


def _longer(clauses: int) -> Study:
    """Texts of more clauses: a tree has a latent for each, the others what they had."""
    return dataclasses.replace(
        AGREETEXT,
        rows={
            name: Row((*overrides, f"data.clauses={clauses}", CLOCK))
            for name, overrides in RUNS.items()
        },
        sequences=500,
        samples=256,
        seeds=(1,),
        optimum=agreetext.nelbo_optimum(clauses),
    )


CHARACTERS = Study(
    rows={
        FIRST: Row(("experiment=sotu-characters", CLOCK)),
        "M1-on": _on("sotu-characters-on", 1000),
        "M8": _on("sotu-characters-on", 690, "model.num_components=8", "loss.backward=drawn"),
        "tree": _on("sotu-characters-on", 510, *_structure("tree", 1, 8, 4)),
        "chain": _on("sotu-characters-on", 490, *_structure("chain", 1, 8, 1)),
        "chain-late": _on("sotu-characters-chain", 860),
        "chain16-late": _on("sotu-characters-chain", 720, "model.block_components=16"),
        "chain32-late": _on(
            "sotu-characters-chain", 590,
            "model.block_components=32", "model.router_reads=shared_blocks",
        ),
        AUTOREGRESSIVE: _autoregressive(
            "data.tokenizer_name_or_path=characters", "data.drop_digit_windows=false"
        ),
    },
    steps=(1, 2, 4, 8, 16, 32),
    sequences=256,
    samples=192,
    policies=("redraw",),
    baseline="M1-on",
    sampling_seeds=(1, 2, 3),
)
WORDS = Study(
    rows={
        FIRST: Row(("experiment=sotu", CLOCK)),
        "M1-on": _on("sotu-on", 1000),
        "M8": _on("sotu-on", 470, "model.num_components=8", "loss.backward=drawn"),
        "chain-late": _on("sotu-chain", 770),
        "chain16-late": _on("sotu-chain", 710, "model.block_components=16"),
        "chain32-late": _on("sotu-chain", 640, "model.block_components=32"),
        AUTOREGRESSIVE: _autoregressive(),
    },
    steps=(1, 2, 4, 8, 16, 32),
    sequences=256,
    samples=96,
    policies=("redraw",),
    baseline="M1-on",
    sampling_seeds=(1, 2, 3),
    judge="smollm2",
)


def _from_longer(study: Study, steps: int) -> Study:
    """The bounds of the same runs, from a factorised model that more steps hardly help."""
    first = study.rows[FIRST]
    length = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // 10}")
    rows = {FIRST: dataclasses.replace(first, overrides=(*first.overrides, *length))}
    rows |= {arm: study.rows[arm] for arm in ("M1-on", "chain-late")}
    return dataclasses.replace(study, rows=rows, seeds=(1,), samples=0, judge=None)


STUDIES = {
    "agreetext": AGREETEXT,
    "agreetext-blocks": BLOCKS,
    "agreetext-sites": SITES,
    "agreetext-8": _longer(8),
    "agreetext-16": _longer(16),
    "characters": CHARACTERS,
    "words": WORDS,
    "words-long": _from_longer(WORDS, 5000),
}
