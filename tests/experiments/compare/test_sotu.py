"""The comparison on text from runs to table, with a random judge; and that it resumes."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from experiments.compare import comparison, sotu, training
from experiments.compare.entries import collect
from experiments.compare.figure import COLORS
from experiments.compare.methods import Row
from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.errors import UserError
from lkf_plugin.judge.judge import Judge
from lkf_plugin.methods.causal import CausalTransformer
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.settings import flatten
from lkf_plugin.train.optimizer import MuonBesideAdamW, build_optimizer
from tests.experiments.compare.conftest import LENGTH, SEED, STEPS

SAMPLES = 3


def compare(
    out: Path, names: list[str], judge: Judge, rows: dict[str, Row], grid: tuple[int, ...] = (1, 2)
) -> str:
    return sotu.compare(out, names, SAMPLES, 2, SEED, judge, grid, STEPS, rows, LENGTH)


@pytest.fixture
def out(tmp_path: Path, trained: Path) -> Path:
    """A copy of the runs, without results."""
    return shutil.copytree(trained, tmp_path / "out", ignore=shutil.ignore_patterns("cache"))


def test_from_runs_to_table_and_what_is_there_is_kept(
    out: Path, tiny_rows: dict[str, Row], tiny_judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compare(out, ["lkf-M8", "ar", "duo"], tiny_judge, tiny_rows)
    assert (out / "table.md").read_text() == table
    assert (out / "compare.png").stat().st_size > 10_000
    assert (out / "lkf-M1" / "checkpoints" / "best.ckpt").is_file()  # trained, not a row
    stored = collect(read_records(out / "records"), tiny_rows)
    assert list(stored) == ["ar", "duo", "lkf-M8"]

    ar, duo = stored["ar"].cells, stored["duo"].cells
    assert set(ar) == {("own", LENGTH), ("best", LENGTH)}
    assert ar["best", LENGTH].value("calls") == 8 * LENGTH
    assert (duo["own", 2].value("calls"), duo["own", 2].value("network_calls")) == (2, 3)
    assert duo["best", 1].value("calls") == 8 * (1 + 4)
    for cell in [*ar.values(), *duo.values()]:
        figure = cell.metrics["gen_ppl[tiny-gpt2]"]
        assert figure.value > 1 and figure.n == SAMPLES
        assert 0 < cell.metrics["entropy"].value <= math.log(LENGTH) + 1e-12
    best = stored["lkf-M8"].under("best")[0].metrics
    shares = [best[f"share[{k}]"].value for k in range(8)]
    assert sum(shares) == pytest.approx(1)
    assert max(shares) == shares[int(best["favourite"].value)]
    assert "gen_ppl[tiny-gpt2].without_favourite" in best

    assert "judge tiny-gpt2 float32 | gen_ppl[tiny-gpt2]" in table
    assert "| ar | " in table and "exact" in table and "| lkf-M1 |" not in table
    assert "| lkf-M8, best of 8: J | favourite | its share (even: 0.125)" in table
    assert table.index("| ar |") < table.index("| lkf-M8 |")  # the tables' order, not the flag's

    drawn = []

    def noted(self: Any, records: Any, quality: Any, cell: Any, *place: Any) -> Any:
        drawn.append(place)
        return real(self, records, quality, cell, *place)

    def never(*args: Any) -> Any:
        raise AssertionError("was there already")

    real = comparison.Comparison._measured
    monkeypatch.setattr(comparison.Comparison, "_measured", noted)
    monkeypatch.setattr(comparison, "held_out_nats", never)
    monkeypatch.setattr(training, "_train", never)
    monkeypatch.setattr(sotu, "both_ends", never)
    assert compare(out, ["duo", "lkf-M8"], tiny_judge, tiny_rows) == table
    assert drawn == []
    more = compare(out, ["duo"], tiny_judge, tiny_rows, (1, 4))
    assert drawn == [("duo", "own", 4), ("duo", "best", 4)]
    assert "J=1 | J=2 | J=4" in more


def test_the_factorised_row_is_the_control_of_best_of_m(
    out: Path, tiny_rows: dict[str, Row], tiny_judge: Judge
) -> None:
    table = compare(out, ["lkf-M1", "lkf-M8"], tiny_judge, tiny_rows, (1,))
    (control,) = collect(read_records(out / "records"), tiny_rows)["lkf-M1"].under("best")
    assert control.value("calls") == 8 * (1 + 4)
    fewer = control.metrics["gen_ppl[tiny-gpt2].one_fewer"].value
    last = next(line for line in table.splitlines() if line.startswith("| 1 |"))
    assert last.split(" | ")[-1].startswith(f"{fewer:.{0 if fewer >= 100 else 1}f} ±")


def test_numbers_below_one_are_refused(tmp_path: Path, tiny_judge: Judge) -> None:
    with pytest.raises(UserError, match="--grid 0"):
        sotu.compare(tmp_path, ["mdlm"], 4, 1, 1, tiny_judge, [0, 2])


def test_every_row_can_be_drawn() -> None:
    assert set(sotu.ROWS) <= set(COLORS)


def composed(*overrides: str) -> Any:
    register_resolvers()
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        return hydra_compose("config", overrides=list(overrides))


@pytest.mark.parametrize("name", ["ar", "mdlm", "sedd", "duo"])
def test_baselines_train_as_the_factorised_model_does(name: str) -> None:
    """Data, size and training of both experiments, from start to optimizer."""
    theirs = composed(*sotu.ROWS[name].overrides)
    ours = composed("experiment=sotu")
    same = ("data", "optim", "training", "loader", "lr_scheduler", "trainer", "checkpointing")
    shape = ("hidden_size", "n_blocks", "n_heads", "length", "cond_dim", "dropout")
    for group in same:
        mine, other = (
            flatten(OmegaConf.to_container(one[group], resolve=True)) for one in (ours, theirs)
        )
        places = {"save_dir", "resume_ckpt_path"}
        assert {k: v for k, v in mine.items() if k not in places} == {
            k: v for k, v in other.items() if k not in places
        }
    own = ("trunk", "open_gates", "local_heads")  # of the diffusion networks
    for key in (k for k in (*shape, *own) if name != "ar" or k not in own):
        assert ours.model[key] == theirs.model[key], key
    assert ours.time_conditioning == theirs.time_conditioning and ours.seed == theirs.seed


def test_muon_takes_the_matrices_of_ar() -> None:
    network = CausalTransformer(20, 16, 2, 2, 0.0)
    optim = composed("experiment=sotu_ar").optim
    optimizer = build_optimizer(network.named_parameters(prefix="backbone"), optim)
    assert isinstance(optimizer, MuonBesideAdamW)
    hidden = optimizer.param_groups[0]["params"]
    assert len(hidden) == 2 * 4  # queries to values, their output, and both of the MLP
    assert not any(weight is network.output_layer.linear.weight for weight in hidden)
