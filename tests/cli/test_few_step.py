"""``mode=ppl_eval eval.steps=[...]``: bounds of few-step samplers, in figures and records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.decode.noise import mix
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.host_steps import HostSteps
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.load import load_run
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]
EVAL = ("mode=ppl_eval", "eval.steps=[1,3]")
NAMES = {"nll@1", "nll_frozen@1", "nll@3", "nll_frozen@3"}
TREE = (*LKF, "model.latent=tree", "model.block_components=2", "model.block_length=4")
CHAIN = (*LKF, "model.latent=chain", "model.block_components=2", "model.block_length=1")


@pytest.mark.parametrize("overrides", [LKF, TREE, CHAIN], ids=["sequence", "tree", "chain"])
def test_of_a_mixture(tiny: Compose, run: Run, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    run(tiny(*overrides))
    report = run(tiny(*overrides, *EVAL))
    (record,) = read_records(tmp_path / "run" / "records")
    assert set(record.metrics) >= NAMES
    loaded = load_run(tmp_path / "run")
    count = record.metrics["nll@1"].n
    again = few_step(loaded, [1, 3], count, loaded.config.seed, progress=False)
    for name, one in again.estimates.items():
        assert record.metrics[name] == one and one.se > 0
        assert report["metrics"][f"val/{name}"] == one.value
    written = json.loads((tmp_path / "run" / "ppl_eval.json").read_text())
    assert written["few_step_nats"]["nll@3"] == again.sequences["nll@3"]
    # in one step nothing is redrawn, and the bound is -log Psi of the all-mask state
    assert again.sequences["nll@1"] == again.sequences["nll_frozen@1"]
    without = run(tiny(*overrides, "mode=ppl_eval"))
    assert "few_step_nats" not in without
    assert len(list(read_records(tmp_path / "run" / "records"))) == 2


def test_of_mdlm_and_of_a_mixture_of_one(tiny: Compose, run: Run, tmp_path: Path) -> None:
    """MDLM's own network by its own forward: the same numbers as LKF's at M = 1."""
    run(tiny())
    assert set(run(tiny(*EVAL))["likelihood"]) >= NAMES
    run(tiny(*LKF, "model.num_components=1", f"run_dir={tmp_path / 'one'}"))
    loaded = load_run(tmp_path / "one")
    x_BL = torch.randint(0, 20, (3, int(loaded.config.model.length)))
    seed_B = mix(1, torch.arange(3))
    ours = few_step_nelbo(NetworkSteps(loaded.network()), x_BL, 3, seed_B)
    host = few_step_nelbo(HostSteps(loaded.module), x_BL, 3, seed_B)
    for a, b in zip(ours, host, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("words", [("method=sedd",), ("T=10",)])
def test_other_samplers_are_refused(tiny: Compose, run: Run, words: tuple[str, ...]) -> None:
    run(tiny(*words))
    with pytest.raises(UserError, match="eval.steps bounds samplers"):
        run(tiny(*words, *EVAL))


@pytest.mark.parametrize("value", ["3", "[0]", "[1,x]", "[]", "[1.5]"])
def test_malformed_numbers_of_steps(tiny: Compose, run: Run, value: str) -> None:
    with pytest.raises(UserError, match="eval.steps=.* must be null, or a list of whole numbers"):
        run(tiny(*LKF, f"eval.steps={value}"))


@pytest.mark.parametrize("overrides", [(), LKF, CHAIN], ids=["mdlm", "sequence", "chain"])
def test_replays_are_exact_likelihoods_beside(
    tiny: Compose, run: Run, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    run(tiny(*overrides))
    report = run(tiny(*overrides, *EVAL, "eval.replay=left_to_right"))
    (record,) = read_records(tmp_path / "run" / "records")
    found = report["few_step_nats"]
    for J in (1, 3):
        assert {f"nll_replay@{J}", f"nll_replay_frozen@{J}"} <= set(record.metrics)
    # in one step there is no order, and the bound is exact
    assert found["nll_replay@1"] == pytest.approx(found["nll@1"], rel=1e-5)
    if overrides:
        assert found["nll_replay@3"] != found["nll_replay_frozen@3"]
    else:  # one component has nothing to redraw
        assert found["nll_replay@3"] == pytest.approx(found["nll_replay_frozen@3"])


def test_a_replay_needs_its_numbers_of_steps(tiny: Compose, run: Run) -> None:
    with pytest.raises(UserError, match="eval.replay=margin replays samplers of so many steps"):
        run(tiny(*LKF, "eval.replay=margin"))
    with pytest.raises(UserError, match="eval.replay=luck"):
        run(tiny(*LKF, "eval.steps=[2]", "eval.replay=luck"))
