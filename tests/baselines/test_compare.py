"""The comparison's script: what it makes of samples, and its tables and figure."""

from __future__ import annotations

import runpy
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from lkf_plugin.corpora import agreetext
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.report.compare_figure import draw_comparison

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_agreetext.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


def decoded(x):
    return Decoded(x, torch.zeros(len(x), dtype=torch.int64), None, 2.0, 3.0)


def test_tables_and_figure_from_cells(script, tmp_path):
    x = agreetext.sample(64, 4, seed=0)
    x[:16, 0] = 5  # not a determiner, or the only right one by chance nowhere
    right = agreetext.valid(x).double().mean().item()
    rows = {}
    for row in ("duo", "lkf-M8"):
        cell = script["measure"](row, "own", 2, decoded(x))
        assert cell.valid == right and cell.samples == 64
        assert 0 < cell.configuration_entropy < 4.2
        rows[row] = {
            "cells": [asdict(cell)],
            "nll": 1.35,
            "nll_se": 0.01,
            "weights": 1000,
            "step": 9,
        }
    table = script["render"](rows, 64)
    assert f"{right:.3f} (2 / 3.0)" in table and "| duo, best of 8 |" in table
    assert "NELBO 1.3500 ± 0.0100 | +0.0070" in table
    cells = [cell for entry in rows.values() for cell in entry["cells"]]
    draw_comparison(tmp_path / "compare.png", cells, 4)
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def test_a_run_is_complete_at_its_last_step(script, tmp_path):
    complete = script["complete"]
    assert not complete(tmp_path)
    (tmp_path / "config.yaml").write_text("trainer: {max_steps: 5}\n")
    (tmp_path / "checkpoints").mkdir()
    for step in (4, 5):
        torch.save({"state_dict": {}, "global_step": step}, tmp_path / "checkpoints" / "last.ckpt")
        assert complete(tmp_path) == (step == 5)


def test_every_row_can_be_drawn_and_sampled(script):
    from lkf_plugin.report.compare_figure import COLORS

    assert list(COLORS) == list(script["ROWS"])
    assert script["grid"]("ar", "own") == (32,)
    assert max(script["grid"]("duo", "best")) == 8
