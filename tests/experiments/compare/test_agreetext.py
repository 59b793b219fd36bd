"""AgreeText's comparison: its tables and figure from records."""

from __future__ import annotations

from pathlib import Path

from experiments.compare.agreetext import ROWS, grid, render
from experiments.compare.entries import collect
from experiments.compare.figure import COLORS, draw_comparison
from lkf_plugin.corpora import agreetext
from lkf_plugin.data.agreetext import AgreeTextCorpus, agreetext_tokenizer
from lkf_plugin.evaluate.quality import RuleQuality
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from tests.records.make import SETTINGS, record


def row(name: str, metrics: dict[str, Estimate]) -> list[Record]:
    """A likelihood and one cell."""
    counts = {"calls": Estimate(2.0, 0.0), "network_calls": Estimate(3.0, None, 64)}
    cell = record(
        metrics={**metrics, **counts},
        settings={**SETTINGS, "samples": 64},
        labels={"compared": name, "decoding": "own", "J": 2},
    )
    bound = {"nelbo": Estimate(1.35, 0.01, 256), "weights": Estimate(1000.0, 0.0)}
    labels = {"compared": name, "trained_steps": 9}
    return [cell, record(kind="likelihood", metrics=bound, labels=labels)]


def test_tables_and_figure_from_records(tmp_path: Path) -> None:
    x = agreetext.sample(64, 4, seed=0)
    x[:16, 0] = 5  # not a determiner, or the only right one by chance nowhere
    right = agreetext.valid(x).double().mean().item()
    metrics = RuleQuality(agreetext_tokenizer(), 32, AgreeTextCorpus.rule, 0).measure(x)
    assert metrics["valid"].value == right
    assert 0 < metrics["configuration_entropy"].value < 4.2
    records = [one for name in ("duo", "lkf-M8") for one in row(name, metrics)]
    entries = collect(records, ROWS)
    table = render(entries)
    assert f"{right:.3f} (2 / 3.0)" in table and "| duo, best of 8 |" in table
    assert "| duo | 1,000 | 9 | NELBO 1.3500 ± 0.0100 | +0.0070" in table
    assert "64 samples per cell" in table
    draw_comparison(tmp_path / "compare.png", entries, 4)
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def test_every_row_can_be_drawn_and_sampled() -> None:
    assert list(COLORS) == list(ROWS)
    assert grid("ar", "own") == (32,)
    assert max(grid("duo", "best")) == 8
