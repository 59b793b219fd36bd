"""Every job of a sweep has a place of its own, and the same one next time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.runs.sweep import job_folder, swept_settings

CONFIG = {
    "mode": "train",
    "seed": 1,
    "run_dir": "outputs/${data.train}/${model.name}-seed${seed}",
    "data": {"train": "text", "path": "a.txt"},
    "model": {"name": "tiny-M${.num_components}", "num_components": 8},
    "optim": {"lr": 3e-4, "muon_lr": 0.02},
    "lr_scheduler": {"warmup_steps": 3},
    "init": {"from_checkpoint": None},
    "sampling": {"steps": 4},
    "trainer": {"precision": "32-true"},
}
GROUPS = {"model", "data", "lr_scheduler"}


def place(swept: dict[str, str], **changes: Any) -> str:
    config = OmegaConf.create({**CONFIG, **changes})
    assert isinstance(config, DictConfig)
    for key, value in swept.items():
        if key not in GROUPS:
            OmegaConf.update(config, key, OmegaConf.create(f"x: {value}").x)
    return job_folder(config, {key: str(value) for key, value in swept.items()}, GROUPS)


def test_what_run_dir_names_stays_as_it_is() -> None:
    assert place({"seed": "2"}) == "outputs/text/tiny-M8-seed2"
    assert place({"model.num_components": "4", "seed": "3"}) == "outputs/text/tiny-M4-seed3"


def test_what_it_does_not_name_is_added() -> None:
    base = "outputs/text/tiny-M8-seed1"
    assert place({"optim.lr": "1e-3"}) == place({"optim.lr": "0.001"}) == f"{base}-lr0.001"
    assert place({"lr_scheduler": "cosine_decay"}) == f"{base}-lr_scheduler-cosine_decay"
    assert place({"sampling.steps": "2"}) == f"{base}-steps2"  # it may sample while training
    assert place({"init.from_checkpoint": "null"}) == f"{base}-from_checkpoint-null"
    assert place({"mode": "train"}) == base


def test_paths_become_short_names_that_differ() -> None:
    names = {place({"data.path": f"/a/{i}/{'long' * 40}.txt"}) for i in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"[\w./+-]+", name) and len(name) < 90 for name in names)


def test_evaluations_keep_the_runs_folder(tmp_path: Path) -> None:
    base = "outputs/text/tiny-M8-seed1"
    assert place({"mode": "sample_eval", "sampling.steps": "2"}, mode="sample_eval") == base
    assert place({"optim.lr": "1e-3"}, mode="ppl_eval") == f"{base}-lr0.001"


def test_an_evaluations_seed_names_a_run_if_there_is_one(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert place({"seed": "2"}, mode="sample_eval", run_dir=run) == run
    (tmp_path / "run-seed2").mkdir()
    assert place({"seed": "2"}, mode="sample_eval", run_dir=run) == f"{run}-seed2"
    assert place({"seed": "2"}, run_dir=run) == f"{run}-seed2"


def test_swept_settings() -> None:
    overrides = ["seed=1,2", "mode=train", "model=a,b", "+x=3", "optim.lr=choice(1,2)", "y=[1,2]"]
    assert swept_settings(overrides) == ["seed", "model", "optim.lr"]


VALUES = st.one_of(
    st.integers(-5, 5).map(str),
    st.floats(1e-6, 1.0).map(repr),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=40),
)


@given(st.lists(VALUES, min_size=2, max_size=4, unique=True))
def test_different_values_have_different_places(values: list[str]) -> None:
    """Also where only a digest tells them apart; case counts, and blanks do."""
    config = OmegaConf.create({**CONFIG, "data": {"train": "text", "path": "?"}})
    places = set()
    for value in values:
        config.data.path = value.replace("$", "S")
        places.add(job_folder(config, {"data.path": value}, GROUPS))
    assert len(places) == len({value.replace("$", "S") for value in values})
    assert all(len(Path(one).name) < 220 for one in places)


@pytest.mark.parametrize("key", ["a.lr", "b.lr"])
def test_two_keys_of_one_last_word_are_written_out(key: str) -> None:
    config = OmegaConf.create({"mode": "train", "run_dir": "r", "a": {"lr": 1}, "b": {"lr": 2}})
    assert job_folder(config, {"a.lr": "1", "b.lr": "2"}, set()) == "r-a.lr1-b.lr2"
