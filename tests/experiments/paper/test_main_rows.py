"""The main table from trainings to cells: every method, two rounds, two seeds of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import runner
from experiments.paper import reproduce as command
from experiments.paper.scales import Corpus
from experiments.recipes import AGREETEXT, Recipe, in_rounds
from experiments.runner import Run
from experiments.tables.command import write_report
from experiments.tables.layouts import LAYOUTS
from experiments.tables.lookup import Lookup
from lkf_plugin.records.store import read_records
from tests.evaluate.small_run import HERE, TINY, train
from tests.experiments.test_runner import Ended

SMALL = (*TINY[1:], "loader.eval_global_batch_size=8", "trainer.limit_val_batches=1")
ROUNDS = {"sdtt": 2, "di4c": 1, "redi": 2, "dcd": 2}
QUICK = ("method.base_steps=4", "lr_scheduler.num_warmup_steps=1")


def recipe(name: str) -> Recipe:
    """As the tables have it, at the size of a test."""
    full, rounds = AGREETEXT[name], ROUNDS.get(name, 0)
    made = Recipe(full.overrides, full.start, full.teacher, rounds).but(*SMALL, *HERE)
    if name == "redi":
        return made.but("method.pairs=8", "method.generation_steps=2", *in_rounds(4, rounds))
    return made.but(*QUICK, *in_rounds(4, rounds)) if rounds else made


NAMES = ("ar", "mdlm", "sedd", "duo", "sdtt", "di4c", "dcd", "redi", "lkf-M1")
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


@pytest.mark.slow
def test_every_row_of_the_main_table_is_filled(records: Path, tmp_path: Path) -> None:
    found = read_records(records)
    table = {name: LAYOUTS[name](Lookup(found)) for name in ("main", "nats", "cost", "coupling")}
    rows = {label: entries for label, _, entries in table["main"].rows}
    for label in (
        "MDLM", "MDLM, best-of-8", "SEDD", "AR (32 calls)", "LKF M=1", "LKF M=1, best-of-8",
        "SDTT, round 1", "SDTT, round 2 (paper: SDTT teacher (7 rounds))", "DUO",
        "DUO, best-of-8", "Di4C, round 1 (paper: Di4C, best r4)", "DCD, round 2", "ReDi, round 1",
        "ReDi, round 2 (paper: ReDi, best rect3)",
    ):  # fmt: skip
        shown = rows[label][1:3] if "AR" not in label else rows[label][2:3]
        assert all(entry.measured is not None for entry in shown), label
        assert {(entry.seeds, entry.deviation is None) for entry in shown} == {(2, False)}, label
        assert all(entry.calls and entry.entropy for entry in shown), label
    nats = {label: entries for label, _, entries in table["nats"].rows}
    bounded = ("MDLM", "SDTT, round 1", "Di4C, round 1 (paper: Di4C, best r4)", "LKF M=1")
    assert all(e.measured is not None for label in bounded for e in nats[label])
    assert [e.measured is None for e in nats["ReDi, round 1"]] == [False, True, True]
    cost = {label: entries for label, _, entries in table["cost"].rows}
    steps = [e.measured.value for e in cost["SDTT, round 1"] if e.measured]
    assert steps == [2.0, 4.0, 2.0, 2.0]  # steps, teacher's calls, made for, trainings
    assert {label for label, _, _ in table["coupling"].rows} >= {"DUO", "ReDi, round 1"}
    written = write_report(records, tmp_path, ("main", "nats", "cost", "coupling"), figures=False)
    text = (tmp_path / "agreetext" / "tables.md").read_text()
    assert len(written) == 9 and " 2s" in text and "student's own" in text
    names = {record.name for record in found}
    assert "agreetext.sdtt-r2-seed2.own.J2" in names and "agreetext.ar.own" in names
    processes = [str(record.subject["process"]) for record in found if record.kind == "samples"]
    assert not any("/" in process for process in processes)  # no path of a teacher
