"""How the rows of a comparison are trained."""

from __future__ import annotations

from pathlib import Path

from experiments.compare.methods import Row
from experiments.compare.sotu import ROWS
from experiments.compare.training import run_of


def test_the_mixture_starts_from_the_factorised_run_of_the_same_comparison(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROWS, "lkf-M8", 3, 4)
    assert run.folder == tmp_path / "lkf-M8" and run.overrides[0] == "experiment=sotu-mixture"
    assert run.start == run_of(tmp_path, ROWS, "lkf-M1", 3, 4)
    assert run.start.overrides == (
        *("experiment=sotu", "model.num_components=1", "seed=3"),
        *("trainer.max_steps=4", "trainer.val_check_interval=4"),
    )


def test_a_short_run_has_its_validation(tmp_path: Path) -> None:
    rows = {"mdlm": Row(("experiment=sotu_baseline", "method=mdlm"))}
    assert "trainer.val_check_interval=4" in run_of(tmp_path, rows, "mdlm", 1, 4).overrides
    whole = run_of(tmp_path, rows, "mdlm", 1)
    assert whole.overrides == (*rows["mdlm"].overrides, "seed=1")
