"""Where an objective's random numbers come from: a host's generator, or counters.

An objective says what is drawn and in which order (``objective.Objective.corrupt``); these classes
draw it. So training, likelihood, selection of candidates and studies corrupt a text in one place.

Shape legend: B sequences, L positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from lkf_plugin.corruption import LogLinearNoise, draw_times, mask_tokens


class Draws(Protocol):
    """Times and masks of one batch.

    Attributes:
        noise: tau -> (sigma, dsigma), with ``sigma_min`` and ``sigma_max``.
        mask_index: id of the mask.
        change_of_variables, importance_sampling: MDLM's two other laws of the times.
    """

    noise: Any
    mask_index: int
    change_of_variables: bool
    importance_sampling: bool

    def times(self, like_BL: Tensor) -> Tensor:
        """One MDLM time per sequence, [B]."""
        ...

    def hide(self, x_BL: Tensor, move_chance_B1: Tensor) -> Tensor:
        """``x_BL`` with each token masked by its chance, [B, L]."""
        ...

    def network_sigma(self, sigma_B: Tensor) -> Tensor:
        """What the network is told of sigma, [B]."""
        ...


class HostOfDraws(Protocol):
    """What is asked of a host here, by MDLM's names."""

    noise: Any  # a module: noise(t) -> (sigma, dsigma), with sigma_min and sigma_max
    mask_index: int  # anywhere in the vocabulary
    importance_sampling: bool
    change_of_variables: bool

    def _sample_t(self, n: int, device: torch.device) -> Tensor:
        """``n`` training times, [n]."""
        raise AssertionError

    def q_xt(self, x: Tensor, move_chance: Tensor) -> Tensor:
        """Masked copy of ``x``."""
        raise AssertionError

    def _process_sigma(self, sigma: Tensor) -> Tensor:
        """sigma as the network takes it, [B]; zeros without time conditioning."""
        raise AssertionError


class HostDraws:
    """A host's own draws, from torch's global generator in MDLM's order.

    Args:
        host: the Lightning module.
    """

    def __init__(self, host: HostOfDraws) -> None:
        self._host = host
        self.noise = host.noise
        self.mask_index = host.mask_index
        self.change_of_variables = host.change_of_variables
        self.importance_sampling = host.importance_sampling

    def times(self, like_BL: Tensor) -> Tensor:
        """MDLM's ``_sample_t``."""
        return self._host._sample_t(like_BL.shape[0], like_BL.device)

    def hide(self, x_BL: Tensor, move_chance_B1: Tensor) -> Tensor:
        """MDLM's ``q_xt``."""
        return self._host.q_xt(x_BL, move_chance_B1)

    def network_sigma(self, sigma_B: Tensor) -> Tensor:
        """MDLM's ``_process_sigma``."""
        return self._host._process_sigma(sigma_B[:, None])


@dataclass
class PlainDraws:
    """MDLM's draws without a host: stratified times, and a network that is told sigma.

    Attributes:
        mask_index: id of the mask.
        noise: the schedule.
        sampling_eps: smallest time.
    """

    mask_index: int
    noise: Any
    sampling_eps: float = 1e-3
    change_of_variables: bool = False
    importance_sampling: bool = False

    @staticmethod
    def of(mask_index: int) -> PlainDraws:
        """Draws under the log-linear schedule."""
        return PlainDraws(mask_index, LogLinearNoise())

    def times(self, like_BL: Tensor) -> Tensor:
        """One uniform per sequence, stratified over the batch."""
        return draw_times(like_BL.shape[0], like_BL.device, sampling_eps=self.sampling_eps)

    def hide(self, x_BL: Tensor, move_chance_B1: Tensor) -> Tensor:
        """One uniform per position."""
        return mask_tokens(x_BL, move_chance_B1, self.mask_index)

    def network_sigma(self, sigma_B: Tensor) -> Tensor:
        """sigma itself."""
        return sigma_B


@dataclass
class CounterDraws:
    """Times and masks that are a function of given uniforms, in float64.

    Attributes:
        noise: the schedule.
        mask_index: id of the mask.
        tau_B: MDLM times.
        u_BL: one uniform per position.
        free_BL: bool; positions that may be masked.
        process_sigma: the host's rule for what the network is told.
    """

    noise: Any
    mask_index: int
    tau_B: Tensor
    u_BL: Tensor
    free_BL: Tensor
    process_sigma: Any
    change_of_variables: bool = False
    importance_sampling: bool = False

    def times(self, like_BL: Tensor) -> Tensor:
        """The times that were given."""
        return self.tau_B

    def hide(self, x_BL: Tensor, move_chance_B1: Tensor) -> Tensor:
        """Free positions whose uniform lies below their chance."""
        return torch.where((self.u_BL < move_chance_B1) & self.free_BL, self.mask_index, x_BL)

    def network_sigma(self, sigma_B: Tensor) -> Tensor:
        """By the host's rule, in float32 as in training."""
        return self.process_sigma(sigma_B.float())
