"""The main table from trainings to cells: every method, two rounds, two seeds of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import runner
from experiments.paper import reproduce as command
from experiments.paper.scales import Corpus
from experiments.recipes import AGREETEXT, Recipe, in_rounds
from experiments.runner import Run
from lkf_plugin.records.store import read_records
from tests.evaluate.small_run import HERE, TINY, train
from tests.experiments.test_runner import Ended

SMALL = (*TINY[1:], "loader.eval_global_batch_size=8", "trainer.limit_val_batches=1")
ROUNDS = {"sdtt": 2, "di4c": 1, "redi": 2}
QUICK = ("method.base_steps=4", "lr_scheduler.num_warmup_steps=1")


def recipe(name: str) -> Recipe:
    """As the tables have it, at the size of a test."""
    full, rounds = AGREETEXT[name], ROUNDS.get(name, 0)
    made = Recipe(full.overrides, full.start, full.teacher, rounds).but(*SMALL, *HERE)
    if name == "redi":
        return made.but("method.pairs=8", "method.generation_steps=2", *in_rounds(4, rounds))
    return made.but(*QUICK, *in_rounds(4, rounds)) if rounds else made


NAMES = ("ar", "mdlm", "sedd", "duo", "sdtt", "di4c", "redi", "lkf-M1")
CORPUS = Corpus(
    name="agreetext",
    recipes={name: recipe(name) for name in NAMES},
    tables=("main",),
    grid=(1, 2),
    samples=4,
    sequences=8,
    judge=None,
    judged_chains=None,
    self_bleu=0,
    batch_size=4,
    seeds=(1, 2),
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")

    def train_here(run: Run, threads: int) -> Ended:
        train(run.folder, out / "cache", *run.command[1:-1])
        return Ended()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_begin", train_here)
        patch.setattr(runner, "POLL", 0.0)
        return command.reproduce([CORPUS], ["main"], out, None, workers=1)


def test_every_row_of_the_main_table_is_filled(records: Path, tmp_path: Path) -> None:
    found = read_records(records)
    print(sorted(r.name for r in found))
