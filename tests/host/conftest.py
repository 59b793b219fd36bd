"""A real MDLM checkout, and small runs in it, for the tests that need one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, open_dict

from lkf_plugin.cli import config_folder
from lkf_plugin.cli import run as run_config
from lkf_plugin.config import register_resolvers
from lkf_plugin.upstream import checkout as mdlm_checkout

CORPUS = ("data=agreetext", "data.train_sequences=64", "data.valid_sequences=16")
TINY = (
    "model.hidden_size=32",
    "model.n_heads=2",
    "model.n_blocks=3",
    "model.cond_dim=16",
    "loader.global_batch_size=8",
    "loader.num_workers=1",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=6",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=1",
    "trainer.num_sanity_val_steps=1",
    "lr_scheduler.num_warmup_steps=2",
    "optim.lr=1e-2",
    "checkpointing.every_n_steps=3",
    "sampling.steps=6",
    "sampling.num_sample_batches=1",
)
MODELS = {
    "plain": ("model=small", "loss=mdlm"),
    "M1": ("model=lkf", "model.latent_blocks=1", "loss=mixture", "model.num_components=1"),
    "M8": ("model=lkf", "model.latent_blocks=1", "loss=mixture", "model.num_components=8"),
}


def _loaded_from_checkout(name: str) -> bool:
    return name.partition(".")[0] in mdlm_checkout.TOP_LEVEL


@pytest.fixture(scope="module")
def checkout():
    """The checkout's folder. MDLM's common module names are free again afterwards."""
    folder = mdlm_checkout.require_checkout()
    before = {n: m for n, m in sys.modules.items() if _loaded_from_checkout(n)}
    path = list(sys.path)
    for name in before:
        del sys.modules[name]
    yield folder
    for name in [n for n in sys.modules if _loaded_from_checkout(n)]:
        del sys.modules[name]
    sys.modules.update(before)
    sys.path[:] = path


@pytest.fixture(scope="module")
def tiny_config(tmp_path_factory) -> Callable[..., DictConfig]:
    """Compose the configuration of a tiny run: `tiny_config("M8", run_dir, *overrides)`.

    Its attribute `overrides` gives the command line of the model alone.
    """
    register_resolvers()
    cache = tmp_path_factory.mktemp("cache")

    def build(
        model: str, run_dir: Path, *overrides: str, corpus: tuple[str, ...] = CORPUS
    ) -> DictConfig:
        own = [f"run_dir={run_dir}", f"data.cache_dir={cache}", "host=mdlm"]
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("config", [*MODELS[model], *corpus, *TINY, *own, *overrides])
        with open_dict(config):
            config.pop("hydra", None)
        return config

    build.overrides = lambda model: [*MODELS[model], *CORPUS, *TINY]
    return build


@pytest.fixture(scope="module")
def trained(checkout, tiny_config, tmp_path_factory) -> dict[str, Path]:
    """Run folders of the three models, trained for six steps in MDLM."""
    folders = {}
    for model in MODELS:
        folders[model] = tmp_path_factory.mktemp(model)
        run_config(tiny_config(model, folders[model]))
    return folders


@pytest.fixture(scope="module")
def judge(tmp_path_factory) -> Path:
    """A tiny GPT-2 with random weights and a byte-pair tokenizer, in a local folder."""
    import tokenizers
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("judge")
    engine = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    engine.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(["the small dog sees the big cat"] * 3, trainer)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    shape = transformers.GPT2Config(
        vocab_size=300, n_positions=1024, n_embd=16, n_layer=1, n_head=2
    )
    transformers.GPT2LMHeadModel(shape).save_pretrained(folder)
    return folder
