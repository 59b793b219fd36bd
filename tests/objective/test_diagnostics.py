"""Entropies and dead components by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.objective.diagnostics import latent_diagnostics


def test_by_hand():
    logw = torch.tensor([[1.0, 1e-6], [1.0, 1e-6]], dtype=torch.float64)
    logw = (logw / logw.sum(-1, keepdim=True)).log()
    gamma = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    found = latent_diagnostics(Sequence(2), SequencePotentials(logw), gamma[:, None])
    assert found["dead_components"] == 1
    assert found["gamma_entropy"].item() == pytest.approx(math.log(2) / 2)
    assert found["router_entropy"].item() == pytest.approx(0, abs=1e-4)
    assert found["usage_entropy"].item() == pytest.approx(found["router_entropy"].item())
