"""MAUVE through a stand-in for the package: what it is given, and what is told without it."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.command import main
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.judge.mauve import mauve, mauve_name
from lkf_plugin.runs.load import LoadedRun

STAND_IN = """
from types import SimpleNamespace
calls = []
def compute_mauve(**given):
    if "gpt2" not in given["featurize_model_name"]:
        raise ValueError("Unknown model")
    calls.append(given)
    same = sum(a == b for a, b in zip(given["p_text"], given["q_text"]))
    return SimpleNamespace(mauve=same / len(given["q_text"]))
"""
CPU = torch.device("cpu")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Puts the stand-in first on the path; returns the calls that it gets."""
    (tmp_path / "mauve").mkdir()
    (tmp_path / "mauve" / "__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mauve", raising=False)
    import mauve as stand_in

    yield stand_in.calls
    sys.modules.pop("mauve", None)


def test_what_the_package_is_given(package: list[dict[str, object]]) -> None:
    found = mauve(["a b", " ", "c"], ["a b", "d", "e"], "gpt2", 32, 7, CPU, 4)
    assert (found.value, found.se, found.n) == (0.5, None, 2)  # the empty sample is left out
    (given,) = package
    assert given["p_text"] == ["a b", "d", "e"] and given["q_text"] == ["a b", "c"]
    assert given["max_text_length"] == 32 and given["seed"] == 7 and given["batch_size"] == 4
    assert given["device_id"] == -1 and given["featurize_model_name"] == "gpt2"
    mauve(["a", "b"], ["a", "b"], "gpt2", 32, 7, torch.device("cuda", 1))
    assert package[-1]["device_id"] == 1


def test_what_it_cannot_do_is_told(package: list[dict[str, object]]) -> None:
    with pytest.raises(UserError, match="cannot take features from bert .Unknown model."):
        mauve(["a", "b"], ["a", "b"], "bert", 32, 0, CPU)
    with pytest.raises(UserError, match="at least two"):
        mauve(["a", ""], ["a", "b"], "gpt2", 32, 0, CPU)


def test_cells_have_it_where_it_is_asked_for(
    package: list[dict[str, object]], tiny_mixture: LoadedRun, tmp_path: Path
) -> None:
    quality = quality_for(tiny_mixture.config, tiny_mixture.prepared.tokenizer, None, "cpu", 0)
    settings = policy_settings("commit")
    plain = Evaluation(tiny_mixture, quality, tmp_path / "records", 6)
    asked = Evaluation(tiny_mixture, quality, tmp_path / "records", 6, featurizer="x/GPT2-gpt2")
    name = mauve_name("x/GPT2-gpt2")
    assert name == "mauve[gpt2-gpt2]" and name not in plain.policy(settings, 2).metrics
    assert asked.policy(settings, 2).metrics[name].n == 6  # the cell that was there lacked it
    assert len(package) == 1 and len(package[0]["p_text"]) == 6
    asked.policy(settings, 2)
    assert len(package) == 1  # kept


@pytest.mark.skipif(importlib.util.find_spec("mauve") is not None, reason="mauve-text is installed")
def test_without_the_package(
    tiny_mixture: LoadedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_mixture.checkpoint)
    assert main([run, "--steps", "1", "--out", str(tmp_path / "none"), "--mauve"]) == 2
    assert "pip install 'lkf-plugin[mauve]'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def tiny_gpt2(folder: Path, words: list[str]) -> Path:
    """A GPT-2 of random weights over a handful of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<|endoftext|>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = GPT2Config(vocab_size=len(vocabulary), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    GPT2LMHeadModel(sizes).save_pretrained(folder)
    return folder


@pytest.mark.skipif(importlib.util.find_spec("mauve") is None, reason="mauve-text is absent")
def test_the_package_itself(tmp_path: Path) -> None:
    words = "the people of united states have a government".split()
    draw = random.Random(0)
    real, alike = ([" ".join(draw.choices(words, k=12)) for _ in range(60)] for _ in range(2))
    featurizer = str(tiny_gpt2(tmp_path / "tiny-gpt2", words))
    near = mauve(alike, real, featurizer, 64, 0, CPU)
    far = mauve([" ".join(["states"] * 12)] * 60, real, featurizer, 64, 0, CPU)
    assert near.value > 0.8 and far.value < 0.2
    assert mauve(alike, real, featurizer, 64, 0, CPU) == near
