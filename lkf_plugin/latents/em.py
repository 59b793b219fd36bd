r"""The best context-free law of a structure, by expectation and maximisation.

At the all-mask state nothing is visible, so that the best kernel of any structure is a context-free
law of text: potentials without hidden states and one table of emissions per component,

.. math:: P(x) = \sum_z \pi(z) \prod_i E_{z_{g(i)}}(x_i \mid i \bmod p).

For a chain over positions it is a hidden Markov model, and EM is Baum and Welch's; for one latent
per sequence, a mixture of unigrams. EM finds in seconds what training by gradient does not find at
all (a uniform chain is a saddle), so it serves twice: its held-out loss is the yardstick at one
step (``information.ceilings``), and its posteriors given clean text teach a network at the start of
training which component means what (``warm_up_nll``).

Shape legend: N windows, B sequences, L positions, G groups, M components, V vocabulary, p period of
the emissions. Unit: nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.latents.structure import Posterior, Structure, expected_log_prior, log_shares
from lkf_plugin.progress import bar


@dataclass(frozen=True)
class ContextFreeLaw:
    """A structure with constant potentials and emissions.

    Attributes:
        structure: what ties the latents.
        potentials: of batch 1, float64.
        log_emission_PVM: log E_k(v) at positions i with i mod p = 0, ..., p - 1, float64.
    """

    structure: Structure[Any]
    potentials: Any
    log_emission_PVM: Tensor

    def on(self, device: torch.device) -> ContextFreeLaw:
        """The same in float32 on a device."""
        if self.log_emission_PVM.device == device and self.log_emission_PVM.dtype == torch.float32:
            return self
        return ContextFreeLaw(
            self.structure,
            self.potentials._make(part.float().to(device) for part in self.potentials),
            self.log_emission_PVM.float().to(device),
        )

    def potentials_of(self, batch: int) -> Any:
        """The potentials, once per sequence (views)."""
        return self.potentials._make(
            part.expand(batch, *part.shape[1:]) for part in self.potentials
        )

    def ell(self, x_BL: Tensor) -> Tensor:
        """ell_BGM of clean tokens."""
        table_RM = self.log_emission_PVM.flatten(0, 1)
        logp_BLM = F.embedding(_emission_rows(x_BL, self.log_emission_PVM), table_RM)
        return self.structure.blocks.sums(logp_BLM.transpose(1, 2))

    def log_prob(self, x_BL: Tensor) -> Tensor:
        """log P of each sequence, [B]."""
        with torch.no_grad():
            return self.structure.log_psi(self.potentials_of(len(x_BL)), self.ell(x_BL))

    def posterior(self, x_BL: Tensor) -> Posterior:
        """Responsibilities and expected counts given clean text: what a warm-up holds fixed."""
        return self.structure.posterior(self.potentials_of(len(x_BL)), self.ell(x_BL))


def warm_up_nll(p: Any, ell_BGM: Tensor, clean: Posterior) -> Tensor:
    """-E_q [log pi(z | x_t) + sum_g ell_{g z_g}] at fixed q, nats per sequence, [B].

    q is ``ContextFreeLaw.posterior`` of the clean text, of the same structure as ``p``. Up to the
    entropy of q this bounds -log Psi from above.
    """
    return -(clean.gamma_BGM * ell_BGM).sum((1, 2)) - expected_log_prior(p, clean.counts)


def fit(
    structure: Structure[Any],
    x_NL: Tensor,
    vocab_size: int,
    rounds: int = 60,
    period: int = 1,
    tied: bool = True,
    smoothing: float = 1.0,
    seed: int = 0,
    window_batch: int = 512,
) -> ContextFreeLaw:
    """EM from a random start near the unigram law.

    Args:
        structure: of any kind.
        x_NL: training windows.
        vocab_size: V.
        rounds: EM rounds.
        period: p. 1 shares a component's emissions between all positions, as a trunk without
            absolute positions must where nothing is visible; ``block_length`` tells the places of
            a block apart, L every position.
        tied: one law of the latents for all groups.
        smoothing: pseudo-counts per component, spread as the unigram law, and per row of the
            potentials.
        seed: of the start.
        window_batch: windows per pass.
    """
    generator = torch.Generator().manual_seed(seed)
    length, M = x_NL.shape[1], structure.components
    unigram_V = torch.bincount(x_NL.flatten(), minlength=vocab_size).double() + 1e-3
    unigram_V1 = (unigram_V / unigram_V.sum())[:, None]
    noise_PVM = torch.randn(period, vocab_size, M, generator=generator, dtype=torch.float64)
    start = structure.counts(structure.uniform(1, length))
    start = start._make(
        part * torch.randn(part.shape, generator=generator, dtype=torch.float64).exp()
        for part in start
    )
    law = ContextFreeLaw(
        structure,
        structure.maximize(start, tied),
        _emissions(unigram_V1 * (0.5 * noise_PVM).exp()),
    )
    for _ in bar(range(rounds), "EM", "round"):
        law = _round(law, x_NL, unigram_V1, tied, smoothing, window_batch)
    return law


def _round(
    law: ContextFreeLaw,
    x_NL: Tensor,
    unigram_V1: Tensor,
    tied: bool,
    smoothing: float,
    window_batch: int,
) -> ContextFreeLaw:
    """One E step in float32, summed in float64, and one M step."""
    structure, logE_PVM = law.structure, law.log_emission_PVM
    fast = ContextFreeLaw(
        structure, law.potentials._make(part.float() for part in law.potentials), logE_PVM.float()
    )
    group_L = structure.blocks.group_of(x_NL.shape[1])
    cells_RM = torch.zeros(logE_PVM.shape[0] * logE_PVM.shape[1], logE_PVM.shape[2]).double()
    counts = [torch.zeros_like(part) for part in law.potentials]
    for x_BL in x_NL.split(window_batch):
        expected = structure.expectation(fast.potentials, fast.ell(x_BL))
        gamma_BLM = expected.gamma_BGM if len(group_L) == expected.gamma_BGM.shape[1] else (
            expected.gamma_BGM[:, group_L]
        )  # fmt: skip
        part_RM = torch.zeros(cells_RM.shape)
        part_RM.index_add_(0, _emission_rows(x_BL, logE_PVM).flatten(), gamma_BLM.flatten(0, 1))
        cells_RM += part_RM
        for total, part in zip(counts, expected.counts, strict=True):
            total += part
    smoothed = (part + smoothing / part.shape[-1] for part in counts)
    return ContextFreeLaw(
        structure,
        structure.maximize(law.potentials._make(smoothed), tied),
        _emissions(cells_RM.unflatten(0, logE_PVM.shape[:2]) + smoothing * unigram_V1),
    )


def _emissions(count_PVM: Tensor) -> Tensor:
    """log E, normalised over the vocabulary."""
    return log_shares(count_PVM.transpose(1, 2)).transpose(1, 2).contiguous()


def _emission_rows(x_BL: Tensor, logE_PVM: Tensor) -> Tensor:
    """Row of each token in the flattened emissions: (i mod p) V + x_i."""
    period, vocab_size, _ = logE_PVM.shape
    place_L = torch.arange(x_BL.shape[1], device=x_BL.device) % period
    return place_L * vocab_size + x_BL
