"""A random GPT-2 with a small byte-level tokenizer, saved as a Hugging Face model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lkf_plugin.runs.load import LoadedRun
from tests.evaluate.small_run import tiny_run

WORDS = "the cat sat on a mat and the dog ran to the old red barn while rain fell all night"


def tiny_tokenizer(adds_bos: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE of 300 entries; ``adds_bos`` makes it put <s> in front by itself."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([WORDS], trainer)
    if adds_bos:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")


def save(folder: Path, adds_bos: bool = False, zero: bool = False) -> Path:
    """Writes the model folder; ``zero`` makes every prediction uniform."""
    tokenizer = tiny_tokenizer(adds_bos)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.5, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    if zero:
        torch.nn.init.zeros_(model.transformer.wte.weight)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def save_judge() -> Callable[..., Path]:
    """``save_judge(folder, adds_bos=False, zero=False)`` writes such a folder."""
    return save


@pytest.fixture(scope="session")
def judge_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("judge") / "Tiny-GPT2")


@pytest.fixture(scope="session")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """M = 3 on AgreeText, four steps old."""
    return tiny_run(tmp_path_factory.mktemp("runs"), 3)
