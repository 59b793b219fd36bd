"""Optimizers: AdamW with MDLM's keys, or Muon for the hidden matrices beside AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from lkf_plugin.errors import UserError
from lkf_plugin.train.muon import Muon

OPTIMIZERS = ("adamw", "muon")


def build_optimizer(
    named_parameters: Iterable[tuple[str, nn.Parameter]], optim: Mapping[str, Any]
) -> Optimizer:
    """The optimizer that the ``optim`` config names, over the parameters that are trained.

    Args:
        named_parameters: names decide which matrices are hidden ones (see ``is_hidden_matrix``).
        optim: ``name`` (adamw, muon), ``lr``, ``beta1``, ``beta2``, ``eps``, ``weight_decay``
            and, for muon, ``muon_lr``.

    Raises:
        UserError: unknown name, or muon for a network without hidden matrices.
    """
    named = [(name, weight) for name, weight in named_parameters if weight.requires_grad]
    adamw: dict[str, Any] = {
        "lr": optim["lr"],
        "betas": (optim["beta1"], optim["beta2"]),
        "eps": optim["eps"],
        "weight_decay": optim["weight_decay"],
    }
    if optim["name"] == "adamw":
        return AdamW([weight for _, weight in named], **adamw)
    if optim["name"] != "muon":
        raise UserError(f"optim.name={optim['name']} is unknown: take adamw or muon.")
    hidden = [weight for name, weight in named if is_hidden_matrix(name, weight)]
    others = [weight for name, weight in named if not is_hidden_matrix(name, weight)]
    if not hidden:
        raise UserError("optim.name=muon found no hidden matrices: take optim.name=adamw.")
    muon = {"lr": optim["muon_lr"], "weight_decay": optim["weight_decay"]}
    return MuonBesideAdamW(hidden, others, muon, adamw)


def is_hidden_matrix(name: str, weight: nn.Parameter) -> bool:
    """Whether Muon takes this weight: a matrix inside the blocks, modulation excepted.

    Embeddings, the head, norms, biases and everything that makes the conditioning stay with AdamW.
    """
    return weight.ndim == 2 and "blocks" in name.split(".") and "adaLN_modulation" not in name


class MuonBesideAdamW(Optimizer):
    """Muon and AdamW behind one optimizer: one step, one state, one list of parameter groups.

    Learning-rate schedules and checkpoints see an ordinary optimizer with two groups (Muon's
    first). The two optimizers inside share its state and groups.
    """

    def __init__(
        self,
        hidden: list[nn.Parameter],
        others: list[nn.Parameter],
        muon: dict[str, Any],
        adamw: dict[str, Any],
    ) -> None:
        self._parts: list[Optimizer] = [Muon(hidden, **muon)]
        if others:
            self._parts.append(AdamW(others, **adamw))
        groups = [group for part in self._parts for group in part.param_groups]
        super().__init__(groups, {})
        self._share()

    def _share(self) -> None:
        """Points both parts at this optimizer's groups and state (loading replaces them)."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups = [group]
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores both parts."""
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step of both; ``closure`` runs once, before them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss
