"""The synthetic studies' tables: what is averaged, what is marked, which pages are refused."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.pages.blocks import fill
from experiments.studies.agreetext import agreetext_recipe
from experiments.studies.catalog import ABLATIONS, STUDIES, Budget
from experiments.studies.cells import block
from experiments.studies.measures import STEPS_J
from experiments.studies.recipe import Recipe
from experiments.studies.records import study_record
from experiments.studies.runs import group_runs, missing, read_records, spread
from experiments.studies.sample_tables import agreetext_losses, agreetext_samples, support
from experiments.studies.tables import (
    ablations,
    hidden,
    learned,
    parity,
    tables,
    targets,
    ties,
)
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record

ROOT = Path(__file__).resolve().parents[3]
MACHINE = {"cpu": "Z80", "cores": 3, "threads": 1, "gpu": None, "gpus": 0, "system": "Linux x"}
EMPTY: dict[str, list[Any]] = {study: [] for study in STUDIES}


def record(study: str, recipe: Recipe, **measured: Any) -> Record:
    return study_record(study, recipe.name, recipe, measured, "0", {"torch": "2.0"}, MACHINE)


def value(x: float, se: float = 0.001) -> Estimate:
    return Estimate(x, se)


def likelihood(study: str, recipe: Recipe, excess: float, information: float = 1.0) -> Any:
    return record(
        study, recipe, optimum=2.0, excess=value(excess), information=value(information),
        total_correlation=value(7 * information),
    )  # fmt: skip


def rows(text: str) -> list[list[str]]:
    """Cells of a table's rows, without heading and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


def of(text: str, *head: str) -> list[list[str]]:
    """The rows that begin with these cells."""
    return [row for row in rows(text) if row[: len(head)] == list(head)]


def test_spread_says_when_there_is_one_seed():
    assert spread([1.0, 2.0, 3.0], 2) == "2.00 ± 1.00"
    assert spread([0.5], 1) == "0.5 (1 seed)"
    assert spread([-1e-9], 3, "") == "0.000"  # no minus before a zero


def test_seeds_are_averaged_and_unlike_runs_are_not():
    base = Recipe("hidden", 4, 1000, ties="split")
    others = [replace(base, steps=500), replace(base, ties="none"), replace(base, lr=1e-3)]
    records = [likelihood("hidden", replace(base, seed=s), 0.01 * (s + 1)) for s in (2, 0, 1)]
    records += [likelihood("hidden", other, 0.5) for other in others]
    found = of(hidden(records), "4")
    assert [row[1:3] for row in found] == [["none", "1000"], ["split", "500"], ["split", "1000"]]
    assert found[2][-1] == "0.0200 ± 0.0100"
    assert found[2][-3] == "2.020 ± 0.010"  # the optimum and the excess
    assert found[0][-1] == "0.5000 (1 seed, se 0.0010)"
    assert [row[1:3] for row in of(hidden(records), "4 (lr=0.001)")] == [["split", "1000"]]


def test_hidden_stands_beside_the_paper_and_the_optimum():
    text = hidden([likelihood("hidden", Recipe("hidden", 16, 700, ties="split"), 0.0, 2.5)])
    assert of(text, "8") == [["8", "", "", "1.87", "not run", "2.079", "13.02", "not run",
                              "14.56", "2.70", "not run", "2.640", ""]]  # fmt: skip
    assert of(text, "16")[0][3:6] == ["2.46", "2.500 (1 seed)", "2.773"]
    assert "Seed 0: M=16 (700 steps, split). Machine: Z80, 3 cores, 1 thread" in text


def test_learned_form_has_a_table_of_its_own():
    analytic, other = Recipe("hidden", 1, 900), Recipe("hidden", 1, 900, form="learned")
    records = [likelihood("hidden", analytic, 0.1), likelihood("hidden", other, 0.2)]
    assert [row[-1] for row in of(hidden(records), "1")] == ["0.1000 (1 seed, se 0.0010)"]
    found = of(learned(records), "1")
    assert [(row[1], row[-1][:6]) for row in found] == [("analytic", "0.1000"),
                                                        ("learned", "0.2000")]  # fmt: skip
    assert of(learned(records[:1]), "1", "learned")[0][3] == "not run"


def test_a_run_counts_once():
    one = likelihood("hidden", Recipe(), 0.1)
    with pytest.raises(UserError, match="are of one run"):
        group_runs([one, replace(one, name="copy")])


def test_ties_are_listed_by_seed():
    recipe = Recipe(steps=700, ties="split")
    found = [likelihood("ties", replace(recipe, seed=s), 0.1, i) for s, i in ((1, 2.6), (0, 2.75))]
    text = ties(found)
    assert of(text, "16", "split")[0][2:5] == ["700", "2.750 2.600", "1/2"]
    assert of(text, "16", "anneal")[0][3] == "not run"


def test_parity_and_ablations_name_their_rows():
    text = parity([likelihood("parity", Recipe("parity", 2, 500), 0.017)])
    assert of(text, "2")[0][1:3] == ["500", "0.0170 (1 seed, se 0.0010)"]
    assert of(text, "4")[0][4] == "not run"
    assert "M = 1 is 7.094" in text and "excess of 0.0170" in text
    base = Recipe(steps=150)
    found = [
        likelihood("ablations", replace(base, seed=seed, **ABLATIONS["lambda_lb +.1"]), 0.3)
        for seed in (0, 1)
    ]
    text = ablations(found)
    assert [row[0] for row in rows(text)] == list(ABLATIONS)
    assert of(text, "lambda_lb +.1")[0][1] == "150" and rows(text)[4][-1] == "0, 1"
    assert "Seeds 0, 1: lambda_lb +.1 (150 steps)." in text


def agreetext(M: int, steps: int, seed: int, mixture: float) -> Record:
    J = list(STEPS_J)
    return record(
        "agreetext", agreetext_recipe(M, steps, seed), mixture_less_entropy=value(mixture),
        marginal_less_entropy=value(-0.01), J=J, valid=[value(0.1 * M) for _ in J],
        configuration_entropy=[1.0] * len(J), configuration_entropy_expected=[2.0] * len(J),
        samples=512,
    )  # fmt: skip


def test_agreetext_is_paired_by_seed_and_says_when_steps_differ():
    ones = [agreetext(1, 900, seed, x) for seed, x in enumerate((-0.02, -0.01, 0.0))]
    twos = [agreetext(2, 900, seed, x) for seed, x in enumerate((-0.06, -0.05))]
    text = agreetext_losses([*ones, *twos, agreetext(8, 2000, 1, -0.08)])
    assert of(text, "1")[0][4] == ""
    assert of(text, "2")[0][3:5] == ["-0.0464", "-0.0400 ± 0.0000"]
    assert of(text, "8")[0][4] == "-0.0700 (1 seed) (M = 1: 900 steps)"
    assert of(text, "16")[0][2:4] == ["not run", "-0.0928"]
    samples = agreetext_samples(twos)
    assert of(samples, "M=2 (900 steps), 2 seeds: valid")[0][1] == "0.200 ± 0.000"
    assert of(samples, "M=8: valid")[0][1] == "not run"


def test_support_is_read_at_its_J():
    J = list(reversed(STEPS_J))  # in another order than the table's
    recipe = Recipe("hidden", 4, 1000, ties="split")
    metrics: dict[str, Any] = {
        "J": J, "in_support": [value(j / 100) for j in J], "recall": [1.0] * 6, "samples": 512
    }  # fmt: skip
    text = support([record("support", recipe, **metrics)])
    label = "M=4 (1000 steps, split), 1 seed: in support"
    assert of(text, label)[0][1:] == [f"{j / 100:.3f}" for j in STEPS_J]
    assert of(text, "M=16: in support, paper")[0][1:] == ["0.47", "", "", "", "", "0.95"]
    with pytest.raises(UserError, match="no J=32"):
        support([record("support", recipe, **{**metrics, "J": [1, 2, 4, 8, 16]})])


def test_targets_count_each_kind_of_run_apart():
    recipe = Recipe("hidden", 4, 1000, ties="split")
    found = [likelihood("hidden", replace(recipe, seed=s), e) for s, e in enumerate((0.03, 0.05))]
    found.append(likelihood("hidden", replace(recipe, steps=50), 0.5))
    text = targets({**EMPTY, "hidden": found})
    assert of(text, "hidden", "M=4 excess") == [
        ["hidden", "M=4 excess", "<= 0.04", "M=4 (50 steps, split), seed 0", "0.5000", "0/1",
         "0.5000"],
        ["hidden", "M=4 excess", "<= 0.04", "M=4 (1000 steps, split), seeds 0, 1", "0.0500", "1/2",
         "0.0300 0.0500"],
    ]  # fmt: skip
    assert of(text, "agreetext", "M=8 valid at J=2")[0][3] == "not run"


def test_a_perturbed_start_counts_for_targets_and_for_no_mean():
    recipe = Recipe("hidden", 4, 1000, ties="split")
    drawn = [replace(recipe, seed=seed) for seed in (0, 1)]
    found = [likelihood("hidden", r, 0.01, i) for r, i in zip(drawn, (1.4, 1.3), strict=True)]
    found.append(likelihood("hidden", replace(recipe, perturb=True), 0.09, 1.2))
    made = tables({**EMPTY, "hidden": found})
    head = ["hidden", "M=4 I", ">= 1.317", "M=4 (1000 steps, split), seeds 0, 1; seed 0 perturbed"]
    row = [*head, "1.2000", "1/3", "1.4000 1.3000 1.2000"]
    assert of(made["targets"], "hidden", "M=4 I") == [row]
    assert of(made["targets"], "hidden", "M=4 excess")[0][4] == "0.0900"  # the worst is the largest
    assert of(made["hidden"], "4")[0][-1] == "0.0100 ± 0.0000"
    found.pop()
    assert of(tables({**EMPTY, "hidden": found})["targets"], "hidden", "M=4 I")[0][3].endswith("1")


def test_missing_is_the_plan_less_the_records():
    def named(study: str) -> list[Any]:
        cells = STUDIES[study](Budget())
        return [study_record(study, c.name, c.recipe, {"J": []}, "0", {}, {}) for c in cells]

    everything = {study: named(study) for study in STUDIES}
    assert missing(everything).startswith("Nothing")
    lacking = {**everything, "theory": [], "ties": everything["ties"][1:]}
    assert missing(lacking).splitlines() == [
        "* `theory`: theorems.",
        f"* `ties`: M=16 ({Budget().steps_for('hidden', 16)} steps), seed 0.",
    ]
    lacking["ablations"] = [one for one in named("ablations") if "_emb" not in one.name][:-1]
    assert "* `ablations`: FiLM std .2 (150 steps), seed 1." in missing(lacking)


def test_a_record_without_its_metric_is_named():
    broken = likelihood("hidden", Recipe("hidden", 4, 1000), 0.1)
    broken = replace(broken, metrics={k: v for k, v in broken.metrics.items() if k != "excess"})
    with pytest.raises(UserError, match=f"{broken.name} of hidden has no excess"):
        hidden([broken])


def test_every_table_stands_without_records():
    made = tables(EMPTY)
    assert all("not run" in text.lower() for name, text in made.items() if name != "missing")
    assert len(made["missing"].splitlines()) == len(STUDIES)


def test_only_the_blocks_of_a_page_change():
    page = (
        "a\n<!-- table: x -->\nold\n<!-- end -->\nb <!-- end --> c\n<!-- table: y -->\n<!-- end -->"
    )
    filled = fill(page, {"x": "new", "y": "| 1 |"})
    assert filled == (
        "a\n<!-- table: x -->\n\nnew\n\n<!-- end -->\nb <!-- end --> c\n"
        "<!-- table: y -->\n\n| 1 |\n\n<!-- end -->"
    )
    assert fill(filled, {"x": "new", "y": "| 1 |"}) == filled


OPEN, END = "<!-- table: x -->\n", "<!-- end -->\n"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("no marker", "lacks <!-- table: x -->"),
        (OPEN, "table: x --> is not closed"),
        (OPEN + "<!-- table: y -->\n" + END, "table: x --> is not closed"),
        (f"a\n{END}{OPEN}{END}", "Line 2: <!-- end --> closes nothing"),
        (f"{OPEN}{END}{END}", "Line 3"),
        (f"{OPEN}{END}<!-- table: z -->\n{END}", "table: z --> names no table: take one of x"),
        (f"{OPEN}{END}{OPEN}{END}", "stands twice"),
    ],
)
def test_bad_markers_are_refused(page: str, said: str):
    with pytest.raises(UserError, match=said):
        fill(page, {"x": "new"})


def test_block_leaves_empty_cells_empty():
    assert block(("", "a"), [["x", ""]], "one.", "", "two.") == (
        "| | a |\n|---|---|\n| x | |\n\none. two."
    )


def test_folder_of_another_kind_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="is no folder"):
        read_records(tmp_path / "none")
    write_record(likelihood("parity", Recipe("parity", 2, 500), 0.1), tmp_path / "hidden")
    with pytest.raises(UserError, match="record of another kind"):
        read_records(tmp_path)


def test_page_shows_its_records():
    page = (ROOT / "docs" / "synthetic.md").read_text(encoding="utf-8")
    assert fill(page, tables(read_records(ROOT / "docs" / "records" / "synthetic"))) == page


def command(monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    records = ROOT / "docs" / "records" / "synthetic"
    argv = ["synthetic_tables.py", "--records", str(records), "--page", str(page)]
    monkeypatch.setattr(sys, "argv", argv)
    runpy.run_path(str(ROOT / "scripts" / "synthetic_tables.py"), run_name="__main__")


def test_command_fills_a_page(tmp_path: Path, monkeypatch: Any, capsys: Any):
    whole = (ROOT / "docs" / "synthetic.md").read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    changed = re.sub(r"\| \d\.\d{4} ± \d\.\d{4} \|", "| by hand |", whole, count=1)
    assert changed != whole
    page.write_text(changed, encoding="utf-8")
    command(monkeypatch, page)
    assert page.read_text(encoding="utf-8") == whole
    assert ": filled, " in capsys.readouterr().out


def test_command_refuses_in_one_sentence_and_writes_nothing(
    tmp_path: Path, monkeypatch: Any, capsys: Any
):
    page = tmp_path / "page.md"
    page.write_text(f"{END}text\n")
    with pytest.raises(SystemExit) as left:
        command(monkeypatch, page)
    assert left.value.code == 2 and page.read_text() == f"{END}text\n"
    assert capsys.readouterr().err == "error: Line 1: <!-- end --> closes nothing: remove it.\n"
