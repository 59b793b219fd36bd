"""Runs beside each other, paired over sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lkf_plugin.commands.compare import Compared, compared, difference, main
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.likelihood import likelihood
from lkf_plugin.runs.load import LoadedRun
from tests.evaluate.small_run import tiny_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[LoadedRun]:
    folder = tmp_path_factory.mktemp("compare")
    return [tiny_run(folder, components) for components in (1, 3)]


def folder_of(run: LoadedRun) -> str:
    return str(run.checkpoint.parent.parent)


def test_figures_are_those_of_the_evaluations(runs: list[LoadedRun]) -> None:
    found = compared(runs[1], "b", 20, [2], 3, 5)
    tokens = found.tokens_B.sum()
    nelbo = likelihood(runs[1], 20, 3, 5, progress=False)["nelbo"].value
    assert found.nats["nelbo"].sum() / tokens == pytest.approx(nelbo, rel=1e-6)
    steps = few_step(runs[1], [2], 20, 5, progress=False).estimates["nll@2"].value
    assert found.nats["nll@2"].sum() / tokens == pytest.approx(steps)


def test_a_difference_is_paired() -> None:
    """A shift of all sequences has no error, whatever their spread."""
    nats_B, tokens_B = np.array([100.0, 300.0, 200.0]), np.full(3, 10.0)
    one = Compared("a", {"x": nats_B}, tokens_B)
    other = Compared("b", {"x": nats_B - 5}, tokens_B)
    found = difference(one, other, "x")
    assert found.value == pytest.approx(0.5) and found.se == pytest.approx(0) and found.n == 3


def test_the_tables(runs: list[LoadedRun], capsys: pytest.CaptureFixture[str]) -> None:
    places = [folder_of(run) for run in runs]
    assert main([*places, "--steps", "1", "2", "--sequences", "8", "--draws", "2"]) == 0
    out = capsys.readouterr().out
    assert "| model.num_components | 1 | 3 |" in out
    lines = [line for line in out.splitlines() if line.startswith(("| nelbo", "| nll@"))]
    assert len(lines) == 3 and all(line.count("±") == 3 for line in lines)
    assert "8 held-out sequences, 2 draws, seed 0" in out


def test_mistakes(runs: list[LoadedRun], capsys: pytest.CaptureFixture[str]) -> None:
    place = folder_of(runs[0])
    assert main([place]) == 2 and main([place, place, "--draws", "0"]) == 2
    assert main([place, str(Path(place) / "nowhere")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[0] for line in told] == ["error:"] * 3
    assert "at least two" in told[0] and "no run folder" in told[2]
