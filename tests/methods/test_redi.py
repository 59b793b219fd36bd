"""method=redi from a teacher's pairs to its last round: kept bit for bit, checked by digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.data.prepare import prepare
from lkf_plugin.errors import UserError
from lkf_plugin.runs.common import build_module
from tests.methods.kills import KEEP, back_to, last

SIZES = (
    "trainer.max_steps=6",
    "method.rounds=2",
    "method.pairs=10",
    "method.generation_steps=3",
    "optim.lr=1e-3",
    "training.ema=0.5",
)


@pytest.fixture
def teacher(trained: Callable[[str], Path]) -> str:
    return f"method.teacher={trained('duo')}"


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


def test_perturbed_pairs_begin_from_texts_of_the_run(runs, teacher, tmp_path):
    """Each start keeps its own share of a text; rounds differ; ``plan.json`` knows the texts."""
    words = (*SIZES, teacher, "method.perturbed=true", "method.times=start")
    config = runs("redi", "run", *words)
    cli.run(config)
    folder = tmp_path / "run" / "pairs"
    module = build_module(config, agreetext_tokenizer())
    data = SimpleNamespace(prepared=prepare(config, ("train",)))
    module._trainer = SimpleNamespace(datamodule=data)
    digests, calls = [], 0
    for number in (0, 1):
        module.round = number
        paths = sorted((folder / f"round-{number}").glob("*.npy"))
        start, _ = np.concatenate([np.load(path) for path in paths], axis=1)
        texts, clean = module._texts().numpy(), module.clean_shares(number).numpy()
        kept = (start == texts).mean(1)
        assert np.abs(kept - clean).mean() < 0.12
        assert np.corrcoef(kept, clean)[0, 1] > 0.8
        plan = json.loads((folder / f"round-{number}" / "plan.json").read_text())
        assert plan["texts"] == sha256(texts).hexdigest()
        digests.append(plan["texts"])
        steps = np.maximum((3 * (1 - clean)).astype(int), 1)
        calls += sum(max(steps[first : first + 4]) + 1 for first in (0, 4, 8))
    assert digests[0] != digests[1]
    assert read_checkpoint(last(tmp_path / "run"))["teacher"]["calls"] == calls


def test_a_run_older_than_perturbed_pairs_goes_on(runs, teacher, tmp_path):
    words, folder = (*SIZES, teacher, *KEEP), tmp_path / "run"
    cli.run(runs("redi", "run", *words))
    whole = read_checkpoint(last(folder))["state_dict"]
    back_to(folder, 5)
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    del settings["method"]["perturbed"], settings["method"]["times"]
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    for path in folder.glob("pairs/*/plan.json"):
        plan = json.loads(path.read_text())
        assert plan.pop("texts") == ""
        path.write_text(json.dumps(plan))
    cli.run(runs("redi", "run", *words))
    torch.testing.assert_close(read_checkpoint(last(folder))["state_dict"], whole, rtol=0, atol=0)


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
    with pytest.raises(UserError, match="holds pairs of other texts"):
        cli.run(runs("redi", "third", *SIZES, teacher, "method.perturbed=true"))
    with pytest.raises(UserError, match="holds pairs of steps=3"):
        cli.run(runs("redi", "third", *SIZES, teacher, "method.generation_steps=2"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    (
        (("method.rounds=4",), "method.rounds=4 must divide trainer.max_steps=6"),
        (("method.pairs=3",), "method.pairs=3 must be at least loader.global_batch_size=4"),
        (("method.teacher=''",), "name its checkpoint in method.teacher"),
        (("method.loss=kl",), "take elbo or simple"),
        (("method.times=late",), "take all or start"),
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
