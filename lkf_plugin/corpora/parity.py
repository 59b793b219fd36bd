"""Parity: uniform over the bit strings with an even number of ones (paper, Theorem "parity").

The control corpus: any proper subset of the bits is uniform, so the whole correlation sits in the
step that reveals all the remaining bits, and a mixture needs exponentially many components for it
(TV >= (1 - M / 2^(d-1)) / 3). What *is* exact for few components: a state with n masked bits has
2^(n-1) equally likely completions, so M >= 2^(n-1) components, one a completion, represent its
transition. For states with more masked bits the factorized transition is what every M attains; a
better mixture of a few components exists there, but no closed form is known for it.

Clock of the paper: t=0 all masked, t=1 clean. Entropies and log-probabilities are in nats.
Shape suffixes: B batch, L positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.corpora.few_step import Steps, step_times
from lkf_plugin.corpora.reveal import Time, as_time, binary_entropy, reveal, reveal_probability
from lkf_plugin.errors import UserError

LOG2 = math.log(2.0)


@dataclass(frozen=True)
class Parity:
    """The corpus and its closed forms.

    Attributes:
        length: number of bits d; the values are 0 and 1, the mask's id is 2.
    """

    length: int = 16

    def __post_init__(self) -> None:
        if self.length < 2:
            raise UserError("Parity needs at least 2 bits.")

    @property
    def values(self) -> int:
        """Number of values a position takes: 2."""
        return 2

    @property
    def mask_id(self) -> int:
        """Id of the mask, the last of the three outcomes."""
        return 2

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw ``n`` even strings, int64 of shape (n, d), from a generator of their own."""
        generator = torch.Generator().manual_seed(seed)
        free = torch.randint(2, (n, self.length - 1), generator=generator)
        return torch.cat([free, free.sum(-1, keepdim=True) % 2], dim=-1)

    def entropy(self) -> float:
        """Entropy of a string: (d - 1) log 2."""
        return (self.length - 1) * LOG2

    def total_correlation(self) -> float:
        """Total correlation of a string: log 2, one bit."""
        return LOG2

    def solved(self, components: int) -> int:
        """Largest number of masked bits at which M components are exact: 1 + floor(log2 M).

        Raises:
            UserError: if ``components`` is below 1.
        """
        if components < 1:
            raise UserError(f"A mixture needs at least 1 component, not {components}.")
        return min(components.bit_length(), self.length)

    def log_transition(self, xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time) -> Tensor:
        """Exact log q(x_s | x_t).

        Args:
            xs_BL: ids at the later time s, 2 where masked.
            xt_BL: ids at the earlier time t.
            t: a number or shape (B,), in [0, 1).
            s: a number or shape (B,), in [t, 1].

        Returns:
            Shape (B,), float64; the reveal pattern is included.

        Raises:
            UserError: if a row of ``xt_BL`` is fully visible and odd.
        """
        return self._log_prob(xs_BL, xt_BL, t, s, self.length)

    def log_reference(
        self, xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time, components: int
    ) -> Tensor:
        """Log-probability of the best known mixture of M product distributions.

        The optimum for M = 1 (the product of the marginals) and for M >= 2^(d-1) (exact); in
        between it is exact for states with at most :meth:`solved` masked bits and factorized for
        the others, so its loss is an upper bound on the optimum's.

        Arguments, shape and errors as :meth:`log_transition`.
        """
        return self._log_prob(xs_BL, xt_BL, t, s, self.solved(components))

    def cross_entropy(self, t: Time, s: Time, components: int) -> Tensor:
        """Two-time loss of :meth:`log_reference` at (t, s), averaged over x_t and x_s.

        ``d (1-t) (h(p) + p log 2) - log 2 * sum_{1 <= n <= solved} P(n masked) p^n``; with
        ``components = 2 ** (d-1)`` it is the entropy of the true transition.

        Returns:
            Float64, the broadcast shape of ``t`` and ``s``.
        """
        p = reveal_probability(t, s)
        masked = self.length * (1.0 - as_time(t))
        saved = sum(
            (self._masked_chance(n, t) * p**n for n in range(1, self.solved(components) + 1)),
            start=torch.zeros_like(p),
        )
        return masked * (binary_entropy(p) + p * LOG2) - LOG2 * saved

    def nll(self, components: int, t_max: float = 0.95) -> float:
        """Loss of :meth:`log_reference` for t ~ U[0, t_max], s ~ U[t, 1].

        Exact optimum for M = 1; an upper bound on it for larger M, with ``nll(2 ** (d-1))``, the
        true entropy, as the lower bound.
        """
        if not 0.0 < t_max <= 1.0:
            raise UserError(f"t_max must lie in (0, 1], not {t_max}.")
        d = self.length
        # P(n masked) averaged over t is a regularized incomplete beta function, which is a
        # binomial tail: P(Bin(d + 1, t_max) > d - n) / (t_max (d + 1)).
        tail, saved = 0.0, 0.0
        for n in range(self.solved(components) + 1):
            visible = d + 1 - n
            tail += math.comb(d + 1, n) * t_max**visible * (1.0 - t_max) ** n
            if n > 0:
                saved += tail / (t_max * (d + 1)) / (n + 1)
        return d * (1.0 - t_max / 2) * (1.0 + LOG2) / 2 - LOG2 * saved

    def information(self, t: Time, s: Time, components: int) -> Tensor:
        """I(k; X_s | x_t) of :meth:`log_reference` at (t, s), averaged over x_t.

        One component a completion tells ``(n p - p^n) log 2`` about X_s. Zero for M = 1, and zero
        at t = 0 unless M reaches 2^(d-1).
        """
        p = reveal_probability(t, s)
        return LOG2 * sum(
            (
                self._masked_chance(n, t) * (n * p - p**n)
                for n in range(2, self.solved(components) + 1)
            ),
            start=torch.zeros_like(p),
        )

    def captured_correlation(self, t: Time, s: Time, components: int) -> Tensor:
        """Total correlation of :meth:`log_reference` at (t, s), averaged over x_t."""
        p = reveal_probability(t, s)
        return LOG2 * sum(
            (self._masked_chance(n, t) * p**n for n in range(2, self.solved(components) + 1)),
            start=torch.zeros_like(p),
        )

    def in_support(self, x_BL: Tensor) -> Tensor:
        """True where all tokens are bits and their sum is even."""
        return ((x_BL == 0) | (x_BL == 1)).all(-1) & (x_BL.sum(-1) % 2 == 0)

    def recall(self, x_BL: Tensor) -> float:
        """Share of the 2^(d-1) even strings that occur; at most B / 2^(d-1)."""
        return len(x_BL[self.in_support(x_BL)].unique(dim=0)) / 2 ** (self.length - 1)

    def few_step_validity(self, steps: Steps, components: int = 1) -> float:
        """Share of even strings from a sampler that follows :meth:`log_reference`.

        Only the last step that reveals anything can fail: it is right when it reveals at most
        :meth:`solved` bits, and else even half of the time.

        Args:
            steps: number of equal steps J, or a grid of times from 0 to 1.
            components: number of components M.
        """
        times, d = step_times(steps), self.length
        right = sum(
            math.comb(d, n) * (end - start) ** n * start ** (d - n)
            for n in range(1, self.solved(components) + 1)
            for start, end in zip(times, times[1:], strict=False)
        )
        return 0.5 + 0.5 * right

    def _masked_chance(self, n: int, t: Time) -> Tensor:
        """P(n of d bits are masked at t)."""
        t = as_time(t)
        return math.comb(self.length, n) * (1.0 - t) ** n * t ** (self.length - n)

    def _log_prob(self, xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time, solved: int) -> Tensor:
        """Log transition, exact for up to ``solved`` masked bits and factorized beyond."""
        seen = reveal(xs_BL, xt_BL, t, s, self.mask_id)
        if not bool((self.in_support(xt_BL) | (seen.masked_B > 0)).all()):
            raise UserError("No parity string is fully visible and odd.")
        finished_B = (seen.revealed_B == seen.masked_B) & (seen.masked_B > 0)
        forced_B = finished_B & (seen.masked_B <= solved)
        free_B = seen.revealed_B - forced_B.long()  # the last bit follows from the others
        log_value_B = -LOG2 * free_B.double()
        wrong_B = forced_B & ~self.in_support(xs_BL)
        return seen.log_prob_B + log_value_B.masked_fill(wrong_B, -torch.inf)
