"""An objective costs one file and its YAML."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch

from lkf_plugin.objective import OBJECTIVES, PlainDraws
from tests.extension.conftest import LIMIT
from tests.tiny import tiny_backbone

FILES = ["my_losses.py", "conf/loss/clipped.yaml"]


def test_the_example_trains(example, main, tmp_path: Path, capfd) -> None:
    clipped = example("An objective")
    assert clipped.files == FILES and clipped.lines <= LIMIT
    assert main(*clipped.arguments) == 0, capfd.readouterr().err
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "name: my_losses.clipped" in saved and "max_weight: 2" in saved
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    assert main(*clipped.arguments) == 0  # it is complete: nothing is trained anew
    assert "this run is complete" in capfd.readouterr().out


def test_its_knob_is_checked(example, main, capfd) -> None:
    clipped = example("An objective")
    assert main(*clipped.arguments[:-1], "loss.max_weight=0") == 2
    assert "loss.max_weight=0" in capfd.readouterr().err


def test_it_is_the_mixture_under_another_weight(example) -> None:
    """Above every weight it is the mixture itself; below, each sequence's term is scaled."""
    example("An objective")
    importlib.import_module("my_losses")
    settings = {"token_head": "auto", "chunk_rows": 64, "lambda_ent": 0.0, "lambda_lb": 0.0}
    backbone = tiny_backbone()
    x0_BL = torch.randint(3, 7, (6, 8), generator=torch.Generator().manual_seed(0))
    values = {}
    for name, weight in (("mixture", 1.0), ("clipped", 1e6), ("clipped", 0.5)):
        torch.manual_seed(1)
        objective = OBJECTIVES[name]({**settings, "max_weight": weight}, backbone.structure)
        corruption = objective.corrupt(x0_BL, torch.ones_like(x0_BL), PlainDraws.of(2))
        values[name, weight] = objective.train(backbone, corruption).nll_B, corruption.weight_B
    exact_B, weight_B = values["mixture", 1.0]
    assert torch.equal(values["clipped", 1e6][0], exact_B)
    clipped_B, bounded_B = values["clipped", 0.5]
    assert bounded_B.max() == 0.5 < weight_B.max()
    torch.testing.assert_close(clipped_B, exact_B * (bounded_B / weight_B), rtol=1e-5, atol=0)
