r"""The seam: what a structure of latents gives to training, evaluation and sampling.

Positions are split into G groups, each with a latent z_g in {0, ..., M - 1}. With the component
denoisers P^k and the law pi of the latents, one step is

.. math:: \Psi(x_s | x_t) = \sum_z \pi(z | x_t) \prod_g e^{\ell_{g z_g}},
          \qquad \ell_{gk} = \sum_{i \in g, counted} \log P_i^k(x_i | x_t).

All structures are Markov on a tree, so that sums over z are exact in linear time, and the posterior
of z given x is *of the same structure*: ``condition`` gives it as potentials. Then

* responsibilities gamma_gk = d log Psi / d ell_gk are marginals of the posterior;
* d log Psi / d(log potentials) are its expected counts, in the shape of the potentials;
* a draw from the posterior is a draw.

Hence the gradient of -log Psi is that of -(sum gamma ell + sum counts log potentials) with gamma
and counts fixed, which is all that two-phase training needs.

A structure is one file: its potentials (a NamedTuple of log-probabilities), its mathematics, and
the network that reads them from hidden states, registered by ``@STRUCTURES.add(name)``;
``model.latent`` names it.

Shape legend: B sequences, G groups, K sequence latents, m block latents, M = K m components (branch
passes; component k m + j belongs to sequence latent k and block latent j), L positions, D width,
U = 1 + G uniforms. Unit: nats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from lkf_plugin.errors import UserError
from lkf_plugin.latents.blocks import Blocks
from lkf_plugin.registry import Registry
from lkf_plugin.settings.fields import Group

P = TypeVar("P", bound=tuple[Any, ...])
"""Potentials: a NamedTuple of normalised log-probabilities, the batch first in each."""


class Posterior(NamedTuple):
    """What the latents are, given a target.

    Attributes:
        log_psi_B: log Psi.
        gamma_BGM: responsibilities; they sum to one over components in each group.
        counts: expected counts, d log Psi / d potentials, as the potentials' own NamedTuple.
    """

    log_psi_B: Tensor
    gamma_BGM: Tensor
    counts: Any


class Structure(ABC, Generic[P]):
    """A law of latents over blocks.

    Args:
        num_components: K, latents per sequence.
        block_components: m, latents per block.
        block_length: positions per block.

    Attributes:
        Settings: keys of ``model`` that it has beside those of every structure; each is an
            attribute of what ``build_structure`` makes.
    """

    Settings: ClassVar[type[Group]] = Group

    def __init__(
        self, num_components: int, block_components: int = 1, block_length: int | None = None
    ) -> None:
        for key, value in (
            ("num_components", num_components),
            ("block_components", block_components),
        ):
            if value < 1:
                raise UserError(f"model.{key}={value} must be at least 1.")
        self.sequence_components = num_components
        self.block_components = block_components
        # blocks without a latent of their own are no blocks: so one component is MDLM's own sum
        self.blocks = Blocks(None if block_components == 1 else block_length)

    @classmethod
    def from_settings(cls, model: Mapping[str, Any]) -> Self:
        """From a ``model`` config; one that needs more of it overrides this."""
        return cls(
            model["num_components"], model.get("block_components", 1), model.get("block_length")
        )

    @property
    def has_blocks(self) -> bool:
        """Whether blocks have latents of their own, beside the one of the sequence."""
        return self.block_components > 1

    @property
    def components(self) -> int:
        """M = K m, the branch passes of a row."""
        return self.sequence_components * self.block_components

    @abstractmethod
    def capacity(self, length: int) -> float:
        """Most that the latents can tell about a step, max H(z), nats per sequence."""

    @abstractmethod
    def network(self, hidden_size: int) -> nn.Module:
        """Hidden states [B, L, D] -> potentials; uniform (but for options) at the start."""

    @abstractmethod
    def log_psi(self, p: P, ell_BGM: Tensor) -> Tensor:
        """log Psi, [B], differentiable in potentials and ell."""

    @abstractmethod
    def condition(self, p: P, ell_BGM: Tensor) -> P:
        """The law of z given the target, as potentials; not to be differentiated."""

    @abstractmethod
    def counts(self, p: P) -> P:
        """Expected counts of each potential (probabilities, not logs) under the law of z."""

    @abstractmethod
    def marginals(self, p: P) -> Tensor:
        """log pi(z_g = k), [B, G, M] (or [B, 1, M] where all groups share one latent)."""

    @abstractmethod
    def draw(self, p: P, u_BU: Tensor) -> Tensor:
        """z_BG by inverse CDF: uniform 0 is for the sequence latent, 1 + g for group g."""

    @abstractmethod
    def entropy(self, p: P) -> Tensor:
        """H(z), [B]: what the latents of this state can carry, at most ``capacity``."""

    @abstractmethod
    def usage_entropy(self, p: P) -> Tensor:
        """Entropy of the latents' use, averaged over the batch (and the groups), a scalar.

        At most ``capacity``; low where components have died.
        """

    @abstractmethod
    def uniform(self, batch: int, length: int) -> P:
        """Potentials that are uniform, float64."""

    @abstractmethod
    def maximize(self, counts: P, tied: bool) -> P:
        """The potentials under which counts are most likely (the M step of EM).

        Args:
            counts: positive, batch 1.
            tied: one law for all groups.
        """

    def without(self, p: P, component: int) -> P:
        """The law of the latents when one component is taken away, as potentials.

        Here: given that no group uses it. Where levels have probabilities of their own, they share
        out that of the component (``share_out``).
        """
        barred_BGM = torch.zeros_like(self.marginals(p))
        barred_BGM[..., component] = -torch.inf
        return self.condition(p, barred_BGM)

    def expectation(self, p: P, ell_BGM: Tensor) -> Posterior:
        """``posterior`` under potentials of batch 1, its counts summed over the batch (batch 1).

        The E step of EM; a structure may have a faster way than its scans in the log domain.
        """
        many = p._make(part.expand(len(ell_BGM), *part.shape[1:]) for part in p)  # type: ignore[attr-defined]
        posterior = self.posterior(many, ell_BGM)
        counts = posterior.counts._make(part.sum(0, keepdim=True) for part in posterior.counts)
        return posterior._replace(counts=counts)

    def posterior(self, p: P, ell_BGM: Tensor) -> Posterior:
        """log Psi, responsibilities and expected counts, without a graph."""
        with torch.no_grad():
            given = self.condition(p, ell_BGM)
            return Posterior(
                self.log_psi(p, ell_BGM), self.marginals(given).exp(), self.counts(given)
            )

    def responsibilities(self, p: P, ell_BGM: Tensor) -> Tensor:
        """gamma_BGM = d log Psi / d ell, in closed form and without a graph."""
        return self.posterior(p, ell_BGM).gamma_BGM

    def marginal_token_log_probs(self, p: P, logp_BML: Tensor) -> Tensor:
        """log of Psi's marginals, log sum_k pi(z_g(i) = k) P_i^k(x_i), [B, L] (Prop. melbo)."""
        return torch.logsumexp(self.position_weights(p, logp_BML.shape[-1]) + logp_BML, dim=1)

    def marginal_log_probs(self, p: P, logp_BMLV: Tensor) -> Tensor:
        """The marginal denoiser, [B, L, V]: the factorised step with Psi's marginals."""
        weights_BML1 = self.position_weights(p, logp_BMLV.shape[-2])[..., None]
        return torch.logsumexp(weights_BML1 + logp_BMLV, dim=1)

    def position_weights(self, p: P, length: int) -> Tensor:
        """log pi(z = k) at each position, [B, M, L] (or [B, M, 1] for one group)."""
        logpi_BGM = self.marginals(p)
        if logpi_BGM.shape[1] > 1:
            logpi_BGM = logpi_BGM[:, self.blocks.group_of(length, logpi_BGM.device)]
        return logpi_BGM.transpose(1, 2)

    def regularizer(self, p: P, lambda_ent: float, lambda_lb: float) -> Tensor:
        """-lambda_ent (usage entropy) + lambda_lb E_b H(z | x), nats per sequence, a scalar.

        With one latent per sequence it is the paper's (Eq. reg).
        """
        return -lambda_ent * self.usage_entropy(p) + lambda_lb * self.entropy(p).mean()


def detached(p: P) -> P:
    """Potentials without their graph."""
    return p._make(part.detach() for part in p)  # type: ignore[attr-defined, no-any-return]


def in_double(p: P) -> P:
    """Potentials in float64."""
    return p._make(part.double() for part in p)  # type: ignore[attr-defined, no-any-return]


def with_sequence_latent(p: P, k_B: Tensor) -> P:
    """Potentials under a given latent per sequence (the first potential, log w, in all structures).

    Candidates over the sequence latent draw their block latents from these; log Psi under them is
    that of one k.
    """
    held_BK = torch.full_like(p[0], -torch.inf).scatter(-1, k_B[:, None], 0.0)
    return p._replace(**{p._fields[0]: held_BK})  # type: ignore[attr-defined, no-any-return]


def without_sequence_latent(p: P, k: int) -> P:
    """Potentials when one latent per sequence is taken away."""
    return p._replace(**{p._fields[0]: share_out(p[0], k)})  # type: ignore[attr-defined, no-any-return]


def share_out(log_p: Tensor, index: int) -> Tensor:
    """Log-probabilities along the last dimension when one goes to the others in proportion."""
    barred = torch.arange(log_p.shape[-1], device=log_p.device) == index
    return torch.log_softmax(log_p.masked_fill(barred, -torch.inf), dim=-1)


def log_shares(count: Tensor) -> Tensor:
    """Log of counts over their sum along the last dimension."""
    return (count / count.sum(-1, keepdim=True)).log()


def expected_log_prior(p: P, counts: P) -> Tensor:
    """sum counts log potentials, [B]: E log pi(z) under the law that the counts are of.

    Its gradient at fixed counts is that of log Psi in the potentials; a potential of zero that is
    never used adds nothing.
    """
    parts = (
        torch.where(count > 0, count * log_p, 0.0).flatten(1).sum(-1)
        for log_p, count in zip(p, counts, strict=True)
    )
    return torch.stack(list(parts)).sum(0)


STRUCTURES: Registry[type[Structure[Any]]] = Registry("latent structure", "lkf_plugin.latents")


def build_structure(model: Mapping[str, Any]) -> Structure[Any]:
    """The structure that a ``model`` config describes; without ``latent`` it is ``sequence``.

    Raises:
        UserError: an unknown name or an unusable size.
    """
    kind = STRUCTURES[model.get("latent", "sequence")]
    structure = kind.from_settings(model)
    for key in kind.Settings.model_fields:
        setattr(structure, key, model[key])
    return structure
