"""Steps that are not finite are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lkf_plugin.train.finite import NonFiniteError, gradient_norm, require_finite


def test_norm_over_all_gradients() -> None:
    weights = [nn.Parameter(torch.zeros(n)) for n in (2, 1, 1)]
    assert gradient_norm(weights) == 0
    weights[0].grad = torch.tensor([3.0, 0.0])
    weights[1].grad = torch.tensor([4.0])
    assert gradient_norm(weights) == 5


@pytest.mark.parametrize(("loss", "norm"), [("nan", 1.0), (1.0, "inf"), ("-inf", "nan")])
def test_a_bad_step_is_told(loss: float | str, norm: float | str) -> None:
    with pytest.raises(NonFiniteError, match="step 7"):
        require_finite(torch.tensor(float(loss)), torch.tensor(float(norm)), 7)


def test_a_good_step_passes() -> None:
    require_finite(torch.tensor(1.0), torch.tensor(1e30), 1)
