"""Runs on AgreeText, made by the real command."""

from __future__ import annotations

from pathlib import Path

from hydra import compose, initialize_config_dir

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.runs.load import LoadedRun, load_run

TINY = (
    "experiment=demo",
    "model.hidden_size=16",
    "model.cond_dim=8",
    "model.n_blocks=2",
    "model.n_heads=2",
    "data.train_sequences=200",
    "data.valid_sequences=40",
    "loader.global_batch_size=4",
    "trainer.max_steps=4",
    "trainer.val_check_interval=4",
    "trainer.limit_val_batches=0",
)
HERE = ("trainer.accelerator=cpu", "trainer.devices=1", "trainer.precision=32-true")


def train(folder: Path, cache: Path, *overrides: str) -> Path:
    """Trains into ``folder`` and returns it."""
    register_resolvers()
    places = (f"run_dir={folder}", f"data.cache_dir={cache}")
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        config = compose("config", overrides=[*overrides, *HERE, *places])
    cli.run(config)
    return folder


def tiny_run(folder: Path, components: int) -> LoadedRun:
    """A network of random quality, four steps old."""
    name = f"model.num_components={components}"
    return load_run(train(folder / f"M{components}", folder / "cache", *TINY, name))
