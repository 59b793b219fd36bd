"""The GPU script, which no machine here can time, runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from variants import VARIANTS

from lkf_plugin.records.store import read_records

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_gpu_script_on_the_cpu(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_gpu.py"), "--tiny"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (kept,) = read_records(tmp_path / "outputs" / "bench")
    assert kept.name == "gpu_tiny-1t"
    training, sampling = kept.series["tables"]
    assert len(training["rows"]) == len(VARIANTS) and "out of memory" not in str(training["rows"])
    assert [row[0] for row in sampling["rows"]][3] == "single chain, M=8, captured"
    assert all(float(row[2]) > 0 for row in sampling["rows"])
