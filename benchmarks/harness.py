"""What the timing scripts share: interleaved repetitions, spread, peak memory, arithmetic rate."""

from __future__ import annotations

import copy
import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.cli import config_folder
from lkf_plugin.config import register_resolvers

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
    from lkf_plugin.host.mdlm_checkout import find_checkout

    return find_checkout() is not None


def upstream_class(config: DictConfig) -> tuple[type, DictConfig]:
    """MDLM's own Diffusion class from its checkout, and the configuration as it takes it."""
    from lkf_plugin.host import mdlm_shims
    from lkf_plugin.host.mdlm_checkout import load_upstream, require_checkout
    from lkf_plugin.host.mdlm_module import safe_diffusion

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


# --- time ----------------------------------------------------------------------------------------


class Times(NamedTuple):
    """Seconds of the repetitions of one variant."""

    wall: list[float]
    cpu: list[float]


def interleaved(
    variants: Mapping[str, Callable[[], Any]], rounds: int, warmed: Container[str] | None = None
) -> dict[str, Times]:
    """Every variant once a round, after one round that is not counted.

    Neighbours on the machine then disturb all variants alike.

    Args:
        variants: what to time, by name.
        rounds: that are counted.
        warmed: names that the uncounted round runs; all if none are given.
    """
    times = {name: Times([], []) for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            if not number and warmed is not None and name not in warmed:
                continue
            torch.manual_seed(number)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if number:
                times[name].wall.append(wall)
                times[name].cpu.append(cpu)
        note(f"round {number} of {rounds}")
    return times


def ratio(a: list[float], b: list[float]) -> str:
    """Median of the rounds' ratios a / b, with the smallest and the largest."""
    each = [x / y for x, y in zip(a, b, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def median_ratio(a: list[float], b: list[float]) -> float:
    """Median of the rounds' ratios a / b."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def target(label: str, at_most: float, found: float) -> list[str]:
    """A row of a table of targets."""
    return [label, f"{at_most:.2f}", f"{found:.2f}", "met" if found <= at_most else "**not met**"]


TARGET_COLUMNS = ["target", "at most", "found", ""]
TARGET_CAPTION = "Targets: ratios of the medians over rounds, each within one run"


def note(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)


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
    found = {}
    for name, (n, k, m, tile) in cases.items():
        a, b = torch.randn(n, k), torch.randn(m, k)
        out = torch.empty(n, tile)
        best = 0.0
        for _ in range(5):
            start, done = time.process_time(), 0
            for first in range(0, m - tile + 1, tile):
                torch.mm(a, b[first : first + tile].T, out=out)
                done += 2 * n * k * tile
            spent = (time.process_time() - start) / torch.get_num_threads()
            best = max(best, done / spent / 1e9)
        found[name] = best
    return found


def spelled(rates: Mapping[str, float]) -> str:
    """Measured rates in one phrase."""
    return ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())


def layer_flops(shape: Shape) -> float:
    """One block on one token, forward: 12 D^2 multiply-adds and attention over L."""
    return 24 * shape.d**2 + 4 * shape.length * shape.d


def head_flops(shape: Shape) -> float:
    """The head on one token, forward."""
    return 2 * shape.d * shape.vocab


# --- memory --------------------------------------------------------------------------------------


def peak_mb() -> float:
    """Largest resident set of this process so far, MB.

    Not by ``getrusage`` where /proc tells it: that number starts at the parent's.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fresh_peak(script: str, *arguments: str) -> float:
    """What ``script --peak ...`` prints last, run in a process of its own."""
    command = [sys.executable, str(Path(script).resolve()), "--peak", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])
