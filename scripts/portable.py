"""Runs the numeric tests as other CPUs would: under every vector width that this machine has.

    python scripts/portable.py                    # or: make portable
    python scripts/portable.py tests/decode -x    # what pytest takes

PyTorch has kernels for no vectors, AVX2 and AVX-512, which round differently; ATEN_CPU_CAPABILITY
chooses among them. Each runs on one thread, side by side on as many cores as there are; the
machine's own then runs on two threads.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lkf_plugin.progress import bar, say

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = ("default", "avx2", "avx512")  # PyTorch's names, each machine has those up to its own
# These test words, files and pages, or do again what the others test.
NOT_NUMERIC = (
    "tests/architecture",
    "tests/benchmarks",
    "tests/cli",
    "tests/commands",
    "tests/config",
    "tests/data",
    "tests/docs",
    "tests/evaluate",
    "tests/exchange",
    "tests/experiments/compare",
    "tests/experiments/demo",
    "tests/experiments/paper",
    "tests/experiments/tables",
    "tests/experiments/test_runner.py",
    "tests/extension",
    "tests/hub",
    "tests/judge",
    "tests/records",
    "tests/report",
    "tests/runs",
    "tests/test_own_words.py",
)
Setting = tuple[str | None, int]  # capability (None: the machine's own), threads


def own_capability() -> str:
    """What PyTorch takes on this machine when nothing is set, in lower case."""
    question = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    command = [sys.executable, "-c", question]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().lower()


def settings_of(capability: str) -> list[Setting]:
    """The runs for a machine of this capability, the one on two threads last."""
    widths: tuple[str | None, ...]
    if capability in WIDTHS:
        widths = WIDTHS[: WIDTHS.index(capability) + 1]
    else:  # another family of processors: its own kernels, and those without vectors
        widths = ("default", None)
    return [(width, 1) for width in widths] + [(widths[-1], 2)]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(setting: Setting, arguments: list[str]) -> bool:
    """Runs pytest under one setting and says how it went; shows its output only if it failed."""
    capability, threads = setting
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    environment.pop("ATEN_CPU_CAPABILITY", None)
    if capability:
        environment["ATEN_CPU_CAPABILITY"] = capability
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [f"pytest ended with {done.returncode}"]
    name = f"{capability or 'own'} on {threads} thread{'s' * (threads > 1)}"
    if done.returncode:
        say(f"=== {name} failed\n{done.stdout}{done.stderr}")
    say(f"{name}: {lines[-1]} ({time.monotonic() - began:.0f} s)")
    return done.returncode == 0


def main() -> int:
    """Command line: arguments go to pytest in place of the numeric tests."""
    arguments = sys.argv[1:] or [
        "-m",
        "not slow",
        *(f"--ignore={path}" for path in NOT_NUMERIC),
    ]
    capability = own_capability()
    settings = settings_of(capability)
    print(f"this machine has {capability}: {len(settings)} runs of the numeric tests", flush=True)
    single = [setting for setting in settings if setting[1] == 1]
    several = [setting for setting in settings if setting[1] > 1]
    with ThreadPoolExecutor(min(cores(), len(single))) as pool:
        done = itertools.chain(
            pool.map(lambda setting: run(setting, arguments), single),
            (run(setting, arguments) for setting in several),
        )
        passed = list(bar(done, "settings", "run", total=len(settings)))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
