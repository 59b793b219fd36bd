"""AgreeText's comparison: what it makes of samples, and its tables and figure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from experiments.compare.agreetext import ROWS, grid, measure, render
from experiments.compare.figure import COLORS, draw_comparison
from lkf_plugin.corpora import agreetext
from lkf_plugin.evaluate.cells import Samples


def drawn(x: torch.Tensor) -> Samples:
    return Samples(x, torch.zeros(len(x), dtype=torch.int64), None, None, 2.0, 3.0, {})


def test_tables_and_figure_from_cells(tmp_path: Path) -> None:
    x = agreetext.sample(64, 4, seed=0)
    x[:16, 0] = 5  # not a determiner, or the only right one by chance nowhere
    right = agreetext.valid(x).double().mean().item()
    rows = {}
    for row in ("duo", "lkf-M8"):
        cell = measure(row, "own", 2, drawn(x))
        assert cell.valid == right and cell.samples == 64
        assert 0 < cell.configuration_entropy < 4.2
        rows[row] = {
            "cells": [asdict(cell)],
            "nll": 1.35,
            "nll_se": 0.01,
            "weights": 1000,
            "step": 9,
        }
    table = render(rows, 64)
    assert f"{right:.3f} (2 / 3.0)" in table and "| duo, best of 8 |" in table
    assert "NELBO 1.3500 ± 0.0100 | +0.0070" in table
    cells = [cell for entry in rows.values() for cell in entry["cells"]]
    draw_comparison(tmp_path / "compare.png", cells, 4)
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def test_every_row_can_be_drawn_and_sampled() -> None:
    assert list(COLORS) == list(ROWS)
    assert grid("ar", "own") == (32,)
    assert max(grid("duo", "best")) == 8
