"""Evaluations take the tokenizer that the run was trained with."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lkf_plugin.data.tokenizer import load_tokenizer, tokenizer_digest
from lkf_plugin.errors import UserError
from lkf_plugin.runs.identity import CARD
from lkf_plugin.runs.load import load_run
from tests.runs.conftest import WORDS, TextRun, paragraph

Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture
def evaluate(compose: Any, run: Any, text_run: TextRun) -> Evaluate:
    return lambda *more: run(compose(*text_run.overrides, "mode=ppl_eval", *more))


def other_words() -> str:
    """Text whose own tokenizer would have other entries."""
    return " ".join(word[::-1] for word in WORDS)


def nll_by_hand(text_run: TextRun, valid_path: Path, compose: Any, run: Any) -> float:
    """val/nll of a text with the run's tokenizer, named as a folder, by a run without a card."""
    folder = text_run.folder
    bare = folder.parent / "bare" / "checkpoints" / "bare.ckpt"
    bare.parent.mkdir(parents=True)
    checkpoint = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    del checkpoint[CARD]
    torch.save(checkpoint, bare)
    tokenizer = f"data.tokenizer_name_or_path={folder / 'tokenizer'}"
    named = (f"eval.checkpoint_path={bare}", tokenizer, f"run_dir={bare.parent.parent}")
    where = f"data.valid_path={valid_path}"
    report = run(compose(*text_run.overrides, "mode=ppl_eval", *named, where))
    return report["metrics"]["val/nll"]


def test_files_lie_beside_and_their_digest_inside(text_run: TextRun) -> None:
    kept = load_tokenizer(str(text_run.folder / "tokenizer"))
    for name in ("last.ckpt", "best.ckpt"):
        checkpoint = torch.load(text_run.folder / "checkpoints" / name, weights_only=True)
        card = checkpoint[CARD]
        assert card["tokenizer"]["digest"] == tokenizer_digest(kept)
        assert card["tokenizer"]["name"] == "train" and card["method"] == {"name": "mdlm"}
        assert card["network"]["n_heads"] == 2 and card["process"]["T"] == 0
        assert card["data"] and card["version"]


def test_an_appended_paragraph_changes_no_tokenizer(
    text_run: TextRun, evaluate: Evaluate, capsys: Any, monkeypatch: Any
) -> None:
    before = evaluate()
    assert "not the run's" not in capsys.readouterr().out
    with text_run.text.open("a", encoding="utf-8") as file:
        file.write("\n" + "\n\n".join([other_words()] * 3) + "\n")
    module = sys.modules["lkf_plugin.data.prepare"]
    monkeypatch.setattr(module, "train_tokenizer", lambda *_: pytest.fail("trained anew"))
    after = evaluate()
    out = capsys.readouterr().out
    assert "not the run's; it is encoded with the run's tokenizer, train (300 entries" in out
    assert after["vocab_size"] == before["vocab_size"]
    assert after["data_digest"] != before["data_digest"]


def test_another_valid_text_has_the_value_of_the_runs_tokenizer(
    text_run: TextRun, evaluate: Evaluate, compose: Any, run: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(f"{other_words()} {paragraph(i)}" for i in range(30)))
    value = evaluate(f"data.valid_path={other}")["metrics"]["val/nll"]
    assert value == nll_by_hand(text_run, other, compose, run)
    text = f"data.path={other}"
    evaluate(text)
    # without the run's tokenizer the text would be given one of its own, which is refused
    (text_run.folder / "tokenizer").rename(tmp_path / "away")
    with pytest.raises(UserError, match="was trained with the tokenizer train") as caught:
        evaluate(text)
    assert str(caught.value).count("digest") == 2  # both are named


def test_a_damaged_or_foreign_tokenizer_is_refused(
    text_run: TextRun, evaluate: Evaluate, tmp_path: Path
) -> None:
    kept = text_run.folder / "tokenizer"
    shutil.copytree(kept, tmp_path / "copy")
    (kept / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="damaged or holds another tokenizer"):
        evaluate()
    shutil.rmtree(kept)
    evaluate()  # the text is the run's still: its tokenizer has the digest
    with pytest.raises(UserError, match="was trained with the tokenizer train"):
        evaluate("data.tokenizer_name_or_path=text8")


def test_samples_and_notebooks_take_it_too(
    text_run: TextRun, compose: Any, run: Any, capsys: Any
) -> None:
    text_run.text.write_text("\n\n".join(f"{other_words()} {i}" for i in range(60)))
    loaded = load_run(text_run.folder)
    kept = load_tokenizer(str(text_run.folder / "tokenizer"))
    assert tokenizer_digest(loaded.prepared.tokenizer) == tokenizer_digest(kept)
    run(compose(*text_run.overrides, "mode=sample_eval", "loader.eval_batch_size=2"))
    out = capsys.readouterr().out
    assert out.count("encoded with the run's tokenizer") == 2
    assert "averaged weights (EMA 0.9999), float32, computed in 32-true" in out


def test_an_old_checkpoint_finds_its_tokenizer_in_the_cache(
    text_run: TextRun, evaluate: Evaluate, capsys: Any
) -> None:
    path = text_run.folder / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    digest = checkpoint.pop(CARD)["tokenizer"]["digest"]
    path.unlink()
    torch.save(checkpoint, path)
    shutil.rmtree(text_run.folder / "tokenizer")
    with text_run.text.open("a", encoding="utf-8") as file:
        file.write("\n" + other_words() + "\n")
    evaluate()
    assert "from the cache" in capsys.readouterr().out
    folders = (text_run.folder.parent / "cache" / "prepared").glob("*/tokenizer")
    assert {tokenizer_digest(load_tokenizer(str(folder))) for folder in folders} == {digest}
    (text_run.folder / "run.json").write_text("{")
    evaluate()
    assert "does not tell its tokenizer" in capsys.readouterr().out
