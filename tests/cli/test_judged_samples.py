"""Generative perplexity through the real command, with a tiny judge made here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from omegaconf import DictConfig
from tokenizers import Tokenizer, models, pre_tokenizers

from lkf_plugin.data import prepare

Compose = Callable[..., DictConfig]


@pytest.fixture
def judge(tmp_path: Path, tiny: Compose) -> Path:
    """A GPT-2 of one block whose words are those of the corpus."""
    words = prepare(tiny(), splits=("valid",)).tokenizer.get_vocab()
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[END]", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "judge"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[END]", bos_token="[END]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    shape = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_positions=64, n_embd=8, n_layer=1, n_head=2
    )
    transformers.GPT2LMHeadModel(shape).save_pretrained(folder)
    return folder


def test_judged_in_validation_and_in_sample_eval(
    tiny: Compose, run: Callable[[DictConfig], Any], judge: Path, tmp_path: Path
) -> None:
    judged = (
        "eval.compute_generative_perplexity=true",
        f"eval.gen_ppl_eval_model_name_or_path={judge}",
        "loader.eval_batch_size=3",
    )
    final = run(tiny(*judged, "eval.generate_samples=true"))
    assert (tmp_path / "run" / "samples" / "step-4.txt").read_text().strip()
    assert math.isfinite(final["val/gen_ppl"])
    report = run(tiny("mode=sample_eval", *judged))
    metrics = report["metrics"]
    assert metrics["judge"] == "judge" and metrics["gen_ppl_tokens"] > 0
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    assert len(lines) == report["num_samples"] == 6
    assert json.loads(lines[0])["text"]
    # best.ckpt is the last step's here, and both draw with the same seeds
    assert metrics["gen_ppl"] == pytest.approx(final["val/gen_ppl"], rel=1e-4)
