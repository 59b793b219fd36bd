"""Liger's kernels on a CPU: Triton's interpreter runs them, slowly, where the package is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
here = all(importlib.util.find_spec(name) for name in ("liger_kernel", "triton"))
SCRIPT = """
import torch
from lkf_plugin.token_head import fused
fused.check_backend = lambda *_: None  # it refuses a CPU
torch.manual_seed(0)
N, D, V, MASK = 48, 64, 130, 7
leaves = [torch.randn(*size).requires_grad_() for size in ((N, D), (V, D), (V,))]
target_N = torch.randint(MASK + 1, V, (N,))
weight_N = torch.randn(N)
weight_N[::3] = 0

def gradients(logp_N):
    return torch.autograd.grad((logp_N * weight_N).sum(), leaves)

h, w, b = (leaf.double() for leaf in leaves)
logits = (h @ w.T + b).index_fill(1, torch.tensor(MASK), -torch.inf)
exact_N = torch.log_softmax(logits, -1).gather(-1, target_N[:, None]).squeeze(-1)
exact = gradients(exact_N)
for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.03)):
    found_N = fused.liger_logprob(*leaves, target_N, MASK, dtype)
    assert found_N.dtype == torch.float32
    assert (found_N - exact_N).norm() <= near * exact_N.norm(), dtype
    for a, e in zip(gradients(found_N), exact):
        assert (a - e).norm() <= near * e.norm(), dtype
print("agrees")
"""


@pytest.mark.skipif(not here, reason="liger-kernel or triton is absent")
def test_liger_values_and_weighted_gradients() -> None:
    """Weighted rows are what its versions before 0.8.2 got wrong."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "agrees" in done.stdout, done.stderr[-2000:]
