"""The page of runs: what stands on it, that it needs no network, and that its commands are true."""

from __future__ import annotations

import html
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from lkf_plugin import cli
from lkf_plugin.commands.line import translated
from lkf_plugin.config.folder import config_folder
from lkf_plugin.errors import UserError
from lkf_plugin.report import svg
from lkf_plugin.report.command import main
from lkf_plugin.report.html import page, write_html
from tests.evaluate.small_run import HERE, TINY, train

VOID = {"meta", "br", "line", "path", "polyline"}
QUICK = ("trainer.max_steps=3", "trainer.val_check_interval=2", "trainer.limit_val_batches=1")
QUICK += ("trainer.log_every_n_steps=1",)


def do(arguments: list[str]) -> Any:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", overrides=arguments)
    return cli.run(config)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; one has its likelihood and samples at J = 1 and 2."""
    root = tmp_path_factory.mktemp("page")
    folder = root / "sweep <b>&"
    for M in (2, 3):
        train(root / "sweep" / f"M{M}", root / "cache", *TINY, *QUICK, f"model.num_components={M}")
    (root / "sweep").rename(folder)
    base = ["eval", str(folder / "M2"), "loader.eval_batch_size=4", *HERE]
    do(translated([*base, "trainer.limit_val_batches=1.0", "seed=5"]))
    for J in (1, 2):
        words = ["decode=best_of_m", "decode.score_draws=2", f"sampling.steps={J}"]
        do(translated(["sample", *base[1:], *words, "sampling.num_sample_batches=1"]))
    return folder


class Reader(HTMLParser):
    """Checks that tags close, and collects cells, commands and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.commands: dict[str, str] = {}
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self._code: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "code" and given.get("id"):
            self._code = str(given["id"])
        if tag not in VOID or (tag == "path" and self.get_starttag_text()[-2:] != "/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._code = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        if self._code:
            self.commands[self._code] = self.commands.get(self._code, "") + data


@pytest.fixture(scope="module")
def read(runs: Path) -> Reader:
    reader = Reader()
    reader.feed(page(runs))
    reader.close()
    return reader


def test_it_parses_and_needs_no_network(runs: Path, read: Reader) -> None:
    text = page(runs)
    assert read.open == []
    assert len(read.ids) == len(set(read.ids))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    links = [value for name, value in read.attributes if name in ("href", "src")]
    assert links and all(link.startswith("#") and link[1:] in read.ids for link in links)
    copied = [value for name, value in read.attributes if name == "data-copy"]
    assert copied and set(copied) == set(read.commands)
    assert "prefers-color-scheme: dark" in text and "Content-Security-Policy" in text
    assert "<b>" not in text and "sweep &lt;b&gt;&amp;: runs side by side" in text


def test_figures_are_the_folders(runs: Path, read: Reader) -> None:
    (likelihood,) = (runs / "M2" / "likelihoods").glob("*.json")
    one = json.loads(likelihood.read_text())["likelihood"]["nelbo"]
    assert f"{one['value']:.4g} ± {one['se']:.2g}" in read.cells
    assert "model.num_components" in read.cells
    drawn = [json.loads(path.read_text()) for path in (runs / "M2" / "samples").glob("*.json")]
    assert sorted(one["sampling_steps"] for one in drawn) == [1, 2]
    for one in drawn:
        valid = one["diversity"]["valid"]
        assert any(cell.startswith(f"{valid['value']:.4g}") for cell in read.cells)
        assert any(
            cell.startswith(f"{one['diversity']['entropy']['value']:.4g}") for cell in read.cells
        )


def test_samples_are_shown_with_their_component(runs: Path) -> None:
    text = page(runs)
    for path in (runs / "M2" / "samples").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert {row["component"] for row in rows} <= {0, 1} and len(rows) == 4
        for row in rows[:3]:
            block = (
                f'class="sample s{row["component"]}"><div class="who">component {row["component"]}'
            )
            assert f'{block}</div><div class="text">{html.escape(row["text"])}' in text


def test_commands_make_the_numbers_again(runs: Path, read: Reader) -> None:
    files = {path: path.stat().st_mtime_ns for path in (runs / "M2").glob("*/*.json")}
    said = [one for one in read.commands.values() if str(runs / "M2") in one]
    evaluations = {one for one in said if one.startswith(("lkf eval", "lkf sample"))}
    assert len(evaluations) == 3
    for one in evaluations:
        do([*translated(shlex.split(one)[1:]), *HERE])
    after = {path: path.stat().st_mtime_ns for path in (runs / "M2").glob("*/*.json")}
    written_anew = [p for p in files if p.parent.name in ("likelihoods", "samples")]
    assert after.keys() == files.keys()  # the same names, so the same settings
    assert all(after[path] > files[path] for path in written_anew) and len(written_anew) == 3
    (training,) = [one for one in said if one.startswith("lkf train")]
    weights = torch.load(runs / "M2" / "checkpoints" / "last.ckpt", weights_only=True)
    words = [one for one in translated(shlex.split(training)[1:]) if "run_dir" not in one]
    cache = runs.parent / "cache"
    do([*words, f"run_dir={runs.parent / 'again'}", f"data.cache_dir={cache}"])
    again = torch.load(runs.parent / "again" / "checkpoints" / "last.ckpt", weights_only=True)
    for name, tensor in weights["state_dict"].items():
        assert torch.equal(again["state_dict"][name], tensor)


def test_mistakes(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="is a folder"):
        write_html(runs, tmp_path)
    assert main([str(tmp_path), "--html", str(tmp_path / "x.html")]) == 2
    assert not (tmp_path / "x.html").exists()
    assert main([str(runs), "--html", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    capsys.readouterr()


def test_charts_keep_to_their_data() -> None:
    line = svg.Series("a<b", [(1, 2.0, 0.5), (2, float("nan"), None), (4, 8.0, None)], 1)
    text = svg.chart("t", [line], svg.Axis("J", log=True), svg.Axis("y", log=True))
    points = re.findall(r'polyline points="([^"]+)"', text)[0].split()
    assert len(points) == 2 and "a&lt;b" in text and "nan" not in text
    (x1, y1), (x2, y2) = (tuple(map(float, one.split(","))) for one in points)
    assert svg.LEFT <= x1 < x2 <= svg.WIDTH and svg.TOP <= y2 < y1 <= svg.HEIGHT - svg.BOTTOM
    bar = re.findall(r'<g class="s1">.*?<line [^>]*y1="([^"]+)"[^>]*y2="([^"]+)"', text)[0]
    assert svg.TOP <= float(bar[1]) < y1 < float(bar[0]) <= svg.HEIGHT - svg.BOTTOM
    assert svg.chart("t", [svg.Series("none", [])], svg.Axis("x"), svg.Axis("y")) == ""


def test_no_error_bar_hides_another() -> None:
    """Series with errors stand beside each other, the others where they are."""
    with_errors = [svg.Series(str(i), [(1, 2.0, 0.5), (2, 2.0, 0.5)]) for i in range(3)]
    bare = svg.Series("bare", [(1, 2.0, None)])
    assert svg.shifts([with_errors[0], bare, *with_errors[1:]]) == [-5.0, 0.0, 0.0, 5.0]
    assert svg.shifts([bare]) == [0.0] and svg.shifts(with_errors[:1]) == [0.0]
    many = svg.shifts(with_errors * 10)
    assert len(set(many)) == 30 and many[-1] - many[0] == pytest.approx(svg.WIDEST)
    text = svg.chart("t", with_errors, svg.Axis("x"), svg.Axis("y"))
    bars = re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="\1" y2="[\d.]+"/><path', text)
    assert len(set(bars)) == 6
    for low, high, log in (
        (0.1, 7, False),
        (3, 3, False),
        (20, 900, True),
        (4, 4, True),
        (9, 11, True),
    ):
        found = svg.ticks(low, high, log)
        assert (
            found and all(low - 1e-9 <= tick <= high + 1e-9 for tick in found) and len(found) < 12
        )
