"""method=redi from a teacher's pairs to its last round: kept bit for bit, checked by digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError

KEEP = ("checkpointing.every_n_steps=1", "checkpointing.keep_last=9")
SIZES = (
    "trainer.max_steps=6",
    "method.rounds=2",
    "method.pairs=10",
    "method.generation_steps=3",
    "optim.lr=1e-3",
    "training.ema=0.5",
)


def last(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


@pytest.fixture
def teacher(trained: Callable[[str], Path]) -> str:
    return f"method.teacher={trained('duo')}"


def back_to(folder: Path, step: int) -> None:
    for path in (folder / "checkpoints").glob("*.ckpt"):
        number = path.stem.removeprefix("step-")
        if not number.isdecimal() or int(number) > step:
            path.unlink()


def parts(folder: Path) -> dict[str, bytes]:
    found = sorted((folder / "pairs").rglob("*.npy"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_a_kill_in_any_round_resumes_bit_for_bit(runs, teacher, tmp_path, capsys):
    """With its pairs still there, with some of them, and with none."""
    words = (*SIZES, teacher, *KEEP)
    cli.run(runs("redi", "whole", *words))
    whole, pairs = read_checkpoint(last(tmp_path / "whole")), parts(tmp_path / "whole")
    assert whole["teacher"]["round"] == 1
    assert len(pairs) == 6  # 10 pairs of a round in parts of 4
    assert whole["teacher"]["calls"] == 2 * 3 * (3 + 1)
    cli.run(runs("redi", "parts", *words))
    folder = tmp_path / "parts"
    for step, lost in ((5, ()), (3, ("round-1",)), (2, ("round-0/part-00001.npy", "round-1"))):
        back_to(folder, step)
        for name in lost:
            path = folder / "pairs" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            (path.parent / "digests.json").unlink(missing_ok=True)
        capsys.readouterr()
        cli.run(runs("redi", "parts", *words))
        assert f"going on from step {step} of 6" in capsys.readouterr().out
        again = read_checkpoint(last(folder))
        assert parts(folder) == pairs, step
        for key, tensor in whole["state_dict"].items():
            assert torch.equal(tensor, again["state_dict"][key]), (step, key)
        for key, tensor in whole["teacher"]["weights"].items():
            assert torch.equal(tensor, again["teacher"]["weights"][key]), (step, key)
    files = [(tmp_path / name / "metrics.csv").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]


def test_pairs_are_the_teachers_chains(runs, teacher, tmp_path):
    """Rounds differ; noise is uniform over all ids, and a text is what the chain made of it."""
    cli.run(runs("redi", "run", *SIZES, teacher))
    folder = tmp_path / "run" / "pairs"
    first = np.concatenate([np.load(p) for p in sorted((folder / "round-0").glob("*.npy"))], 1)
    second = np.concatenate([np.load(p) for p in sorted((folder / "round-1").glob("*.npy"))], 1)
    assert first.shape == second.shape == (2, 10, 32)
    assert (first[0] != second[0]).any()
    plan = json.loads((folder / "round-0" / "plan.json").read_text())
    assert first.min() >= 0
    assert first.max() < plan["vocab_size"]
    assert plan["steps"] == 3
    other = json.loads((folder / "round-1" / "plan.json").read_text())
    assert other["teacher"] != plan["teacher"]
    assert other["seed"] != plan["seed"]


def test_simple_loss_and_samples(runs, teacher, tmp_path):
    cli.run(runs("redi", "run", *SIZES, teacher, "method.loss=simple"))
    words = (*SIZES, "method.loss=simple")
    cli.run(runs("redi", "run", *words, "mode=sample_eval", "sampling.steps=2"))
    record = json.loads((tmp_path / "run" / "sample_eval.json").read_text())
    assert record["steps_calls"] == 2
    assert record["network_calls"] == 3  # the greedy pass is a call more
    cli.run(runs("redi", "run", *words, "mode=ppl_eval"))
    report = json.loads((tmp_path / "run" / "ppl_eval.json").read_text())
    assert "NELBO of the student itself" in report["likelihood_of"]
    assert report["teacher_calls"] >= 12


def test_damaged_pairs_are_told_and_nothing_is_lost(runs, teacher, tmp_path):
    words = (*SIZES, teacher, *KEEP)
    cli.run(runs("redi", "run", *words))
    folder = tmp_path / "run"
    back_to(folder, 5)
    kept = {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
    part = folder / "pairs" / "round-1" / "part-00000.npy"
    digests, content = part.parent / "digests.json", part.read_bytes()
    damages = (
        (part, content[:-40]),
        (part, content[:-1] + bytes([content[-1] ^ 1])),
        (part, (part.parent / "part-00001.npy").read_bytes()),
        (digests, b"{"),
    )
    for path, damage in damages:
        whole = path.read_bytes()
        path.write_bytes(damage)
        with pytest.raises(UserError, match="cut short or was changed: delete"):
            cli.run(runs("redi", "run", *words))
        assert {p.name: p.read_bytes() for p in (folder / "checkpoints").iterdir()} == kept
        path.write_bytes(whole)
    shutil.rmtree(part.parent)
    cli.run(runs("redi", "run", *words))
    assert part.read_bytes() == content


def test_pairs_of_another_teacher_are_refused(runs, teacher, tmp_path):
    cli.run(runs("redi", "run", *SIZES, teacher))
    folder = tmp_path / "run"
    cli.run(runs("duo", "other", "seed=5"))
    shutil.copytree(folder / "pairs", tmp_path / "second" / "pairs")
    other = f"method.teacher={last(tmp_path / 'other')}"
    with pytest.raises(UserError, match="holds pairs of another teacher"):
        cli.run(runs("redi", "second", *SIZES, other))
    shutil.copytree(folder / "pairs", tmp_path / "third" / "pairs")
    with pytest.raises(UserError, match="holds pairs of steps=3"):
        cli.run(runs("redi", "third", *SIZES, teacher, "method.generation_steps=2"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    (
        (("method.rounds=4",), "method.rounds=4 must divide trainer.max_steps=6"),
        (("method.pairs=3",), "method.pairs=3 must be at least loader.global_batch_size=4"),
        (("method.teacher=''",), "name its checkpoint in method.teacher"),
        (("method.loss=kl",), "take elbo or simple"),
        (("model.hidden_size=32",), "hidden_size"),
    ),
)
def test_mistakes_are_told_before_anything_is_written(runs, teacher, tmp_path, words, sentence):
    with pytest.raises(UserError, match=sentence):
        cli.run(runs("redi", "run", *SIZES, teacher, *words))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_teacher_of_another_process_is_refused(runs, trained):
    with pytest.raises(UserError, match="diffusion is absorbing_state"):
        cli.run(runs("redi", "run", *SIZES, f"method.teacher={trained('mdlm')}"))
