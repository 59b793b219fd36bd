"""What the timing scripts share: sizes, configurations, and the rate of matrix products."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.config import register_resolvers
from lkf_plugin.config.folder import config_folder

SAMPLE_SECONDS = 0.2  # shorter, and the clock of several threads' CPU time is too coarse
MASK_INDEX = 103  # of the BERT vocabulary


class Words:
    """As much of a tokenizer as a Diffusion module reads."""

    mask_token = "[MASK]"
    mask_token_id = MASK_INDEX

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __len__(self) -> int:
        return self.vocab_size


class Shape(NamedTuple):
    """Sizes of a case."""

    d: int = 256
    blocks: int = 6
    heads: int = 4
    latent: int = 2
    length: int = 128
    vocab: int = 30_522
    batch: int = 4


def config_for(shape: Shape, overrides: list[str]) -> DictConfig:
    """The composed configuration of a case."""
    register_resolvers()
    sizes = [
        "host=builtin",
        "data=agreetext",
        f"model.hidden_size={shape.d}",
        f"model.n_blocks={shape.blocks}",
        f"model.n_heads={shape.heads}",
        f"model.length={shape.length}",
        f"loader.eval_batch_size={shape.batch}",
        "model.dropout=0.1",
        "training.ema=0",
    ]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=[*overrides, *sizes])


def has_upstream() -> bool:
    """Whether MDLM's own code is at hand, to stand beside: external/mdlm or $MDLM_HOME."""
    from lkf_plugin.upstream.checkout import find_checkout

    return find_checkout() is not None


def upstream_class(config: DictConfig) -> tuple[type, DictConfig]:
    """MDLM's own Diffusion class from its checkout, and the configuration as it takes it."""
    from lkf_plugin.upstream import shims as mdlm_shims
    from lkf_plugin.upstream.checkout import load_upstream, require_checkout
    from lkf_plugin.upstream.module import safe_diffusion

    mdlm_shims.install(on_gpu=torch.cuda.is_available())
    config = copy.deepcopy(config)
    OmegaConf.resolve(config)
    OmegaConf.set_struct(config, False)
    return safe_diffusion(load_upstream(require_checkout())), config


def roughen(module: Any, latent_scale: float, seed: int = 0) -> None:
    """Gives the zero-started weights values, and the components the wished distance."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.backbone.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        if hasattr(module.backbone, "latent_emb"):
            module.backbone.latent_emb.weight *= latent_scale


# --- arithmetic ----------------------------------------------------------------------------------


def gemm_rate(shape: Shape) -> dict[str, float]:
    """GFLOP/s (CPU seconds of one thread each, times threads) of three matrix products."""
    d, v = shape.d, shape.vocab
    cases = {
        "square 1024": (1024, 1024, 1024, 1024),
        f"block 1024 x {d} x {4 * d}": (1024, d, 4 * d, 4 * d),
        f"head in tiles 512 x {d} x {v}": (512, d, v, min(1024, v)),
        f"head at once 512 x {d} x {v}": (512, d, v, v),
    }
    rates = {}
    for name, (n, k, m, tile) in cases.items():
        a, b = torch.randn(n, k), torch.randn(m, k)
        out = torch.empty(n, tile)
        best = 0.0
        for _ in range(5):
            start, spent, done = time.process_time(), 0.0, 0
            while spent < SAMPLE_SECONDS:
                for first in range(0, m - tile + 1, tile):
                    torch.mm(a, b[first : first + tile].T, out=out)
                    done += 2 * n * k * tile
                spent = (time.process_time() - start) / torch.get_num_threads()
            best = max(best, done / spent / 1e9)
        rates[name] = best
    return rates


def spelled(rates: Mapping[str, float]) -> str:
    """Measured rates in one phrase."""
    return ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())


def layer_flops(shape: Shape) -> float:
    """One block on one token, forward: 12 D^2 multiply-adds and attention over L."""
    return 24 * shape.d**2 + 4 * shape.length * shape.d


def head_flops(shape: Shape) -> float:
    """The head on one token, forward."""
    return 2 * shape.d * shape.vocab
