"""Every taught method, killed before, at and after a change of teacher: bit for bit the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from tests.methods.conftest import LATENT
from tests.methods.kills import KEEP, back_to, last

ROUNDS = ("trainer.max_steps=6", "method.rounds=2", "optim.lr=1e-3")
PAIRS = ("method.pairs=10", "method.generation_steps=3", "training.ema=0.5")
RANGE = ("method.gamma_min=null", "method.gamma_max=null", "training.ema=0.5")
RESET = "method.reset_optimizer=true"
AVERAGE = ("method.ema_on_growth=true", "training.ema=0.5")


class Case(NamedTuple):
    """A method's run.

    Attributes:
        method: its name.
        teacher: the method of its first teacher.
        calls: of the teachers, in all; None where they are drawn.
        words: its settings.
        lost: (step, files) that a kill at that step takes along.
    """

    method: str
    teacher: str
    calls: int | None
    words: tuple[str, ...]
    lost: dict[int, tuple[str, ...]] = {}


HALVED = ("method.base_steps=8",)
LOST = {
    3: ("pairs/round-1",),
    2: ("pairs/round-0/part-00001.npy", "pairs/round-0/digests.json", "pairs/round-1"),
}
CASES = {
    "sdtt": Case("sdtt", "mdlm", 12, HALVED),
    "sdtt-reset": Case("sdtt", "mdlm", 12, (*HALVED, RESET, *AVERAGE)),
    "sdtt-muon": Case(
        "sdtt", "mdlm", 12, (*HALVED, RESET, "optim.name=muon", "method.time_grid=upstream")
    ),
    "sdtt_lkf": Case("sdtt_lkf", "auto", 12, (*HALVED, *LATENT)),
    "dcd": Case("dcd", "duo", 6, (*HALVED, *RANGE)),
    "dcd-average": Case(
        "dcd", "duo", 6, (*HALVED, *RANGE, "method.distance=kl-fwd", "method.ema_on_growth=true")
    ),
    # alone, then under each latent
    "di4c": Case(
        "di4c", "mdlm", 3 * 1 + 3 * 3,
        ("method.latents=3", "training.ema=0.5", "model.dropout=0.1"),
    ),
    # two rounds of three parts, each a chain and its last pass
    "redi": Case("redi", "duo", 2 * 3 * (3 + 1), PAIRS, LOST),
    "redi-perturbed": Case("redi", "duo", None, (*PAIRS, "method.perturbed=true"), LOST),
}  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    """Pairs and metrics."""
    paths = [*folder.rglob("*.npy"), folder / "metrics.csv"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", CASES)
def test_a_kill_in_any_round_resumes_bit_for_bit(runs, trained, tmp_path, capsys, name):
    case, folder = CASES[name], tmp_path / "run"
    taught = trained(case.teacher, *(LATENT if case.teacher == "auto" else ()))
    words = (*ROUNDS, *KEEP, *case.words, f"method.teacher={taught}")
    cli.run(runs(case.method, "run", *words))
    whole, written = read_checkpoint(last(folder)), files(folder)
    assert whole["teacher"]["round"] == 1
    assert case.calls in (None, whole["teacher"]["calls"])
    for step in (5, 3, 2):  # after a change of teacher, at it, and before
        back_to(folder, step)
        for place in case.lost.get(step, ()):
            path = folder / place
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        capsys.readouterr()
        cli.run(runs(case.method, "run", *words))
        assert f"going on from step {step} of 6" in capsys.readouterr().out
        again = read_checkpoint(last(folder))
        for one, other in (
            (whole["state_dict"], again["state_dict"]),
            (whole["teacher"]["weights"], again["teacher"]["weights"]),
            (whole["ema"], again["ema"]),
        ):
            torch.testing.assert_close(other, one, rtol=0, atol=0)
        assert whole["teacher"]["calls"] == again["teacher"]["calls"]
        assert files(folder) == written, step
