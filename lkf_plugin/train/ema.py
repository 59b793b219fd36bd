"""Exponential moving average of the weights, by MDLM's rule and in MDLM's state layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.errors import UserError
from lkf_plugin.train.sharded import like, whole

_CHUNK = 1 << 25  # elements handled at once, which bounds the scratch memory of an update


class ExponentialMovingAverage:
    """shadow <- shadow - (1 - d) (shadow - weight), d = min(decay, (1 + n) / (10 + n)).

    Only weights that are trained have a shadow. The arithmetic is MDLM's to the last bit; tensors
    are handled in groups, which saves kernel launches on a GPU.

    Args:
        parameters: the weights to follow, always given in this order later on.
        decay: largest decay, in [0, 1].

    Source: MDLM, models.ema.ExponentialMovingAverage.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        if not 0.0 <= decay <= 1.0:
            raise UserError(f"training.ema={decay} must lie between 0 (no average) and 1.")
        self.decay = decay
        self.num_updates = 0
        self.shadow_params = [w.detach().clone() for w in _trained(parameters)]
        self.collected_params: list[Tensor] = []

    def move_shadow_params_to_device(self, device: torch.device | str) -> None:
        """Moves the shadows to where the weights are."""
        self.shadow_params = [shadow.to(device) for shadow in self.shadow_params]

    @torch.no_grad()
    def update(self, parameters: Iterable[nn.Parameter]) -> None:
        """Takes the weights after one optimizer step into the average."""
        self.num_updates += 1
        rest = 1.0 - min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        weights = self._matched(_trained(parameters))
        for part in _chunks(self.shadow_params):
            gap = torch._foreach_sub(self.shadow_params[part], weights[part])
            torch._foreach_mul_(gap, rest)
            torch._foreach_sub_(self.shadow_params[part], gap)

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[nn.Parameter]) -> None:
        """Writes the averages into the weights."""
        weights = self._matched(_trained(parameters))
        for weight, shadow in zip(weights, self.shadow_params, strict=True):
            weight.copy_(shadow)

    def store(self, parameters: Iterable[nn.Parameter]) -> None:
        """Puts the weights aside, before ``copy_to``."""
        self.collected_params = [weight.detach().clone() for weight in parameters]

    @torch.no_grad()
    def restore(self, parameters: Iterable[nn.Parameter]) -> None:
        """Brings back the weights put aside by ``store``, and forgets them."""
        for weight, kept in zip(parameters, self.collected_params, strict=True):
            weight.copy_(kept)
        self.collected_params = []

    def state_dict(self) -> dict[str, Any]:
        """MDLM's layout: ``decay``, ``num_updates``, ``shadow_params``."""
        return {
            "decay": self.decay,
            "num_updates": self.num_updates,
            "shadow_params": [whole(shadow) for shadow in self.shadow_params],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved average, on the device where this one's shadows are.

        Raises:
            UserError: it belongs to another network.
        """
        shadows = state["shadow_params"]
        if [s.shape for s in shadows] != [s.shape for s in self.shadow_params]:
            raise UserError(
                "The checkpoint's weight average belongs to another network: "
                "take the model settings that the checkpoint was trained with."
            )
        self.decay = state["decay"]
        self.num_updates = state["num_updates"]
        self.shadow_params = [
            like(new, old)
            for new, old in zip(shadows, self.shadow_params, strict=True)
        ]

    def _matched(self, weights: list[Tensor]) -> list[Tensor]:
        assert len(weights) == len(self.shadow_params), "parameters of another network"
        return weights


def _trained(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [weight for weight in parameters if weight.requires_grad]


def _chunks(tensors: list[Tensor]) -> Iterator[slice]:
    """Slices of consecutive tensors of about ``_CHUNK`` elements together."""
    start, elements = 0, 0
    for end, tensor in enumerate(tensors, start=1):
        elements += tensor.numel()
        if elements >= _CHUNK or end == len(tensors):
            yield slice(start, end)
            start, elements = end, 0
