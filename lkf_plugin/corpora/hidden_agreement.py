"""Hidden agreement: one value, drawn uniformly, fills all positions (paper, App. "synth").

A mixture of M = V components represents every transition exactly; with fewer components the optimum
splits the V values into groups, one per component. From a state with a visible token the transition
factorizes already, so the latent matters at the all-masked state only.

Clock of the paper: t=0 all masked, t=1 clean. Entropies and log-probabilities are in nats.
Shape suffixes: B batch, L positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.corpora.few_step import Steps, partition_agreement
from lkf_plugin.corpora.plug_in import plug_in_entropy
from lkf_plugin.corpora.reveal import Time, as_time, binary_entropy, reveal, reveal_probability
from lkf_plugin.errors import UserError

Components = int | Sequence[int]
"""A number of components M (the values are split evenly) or the sizes of the groups themselves."""


@dataclass(frozen=True)
class HiddenAgreement:
    """The corpus and its closed forms.

    Attributes:
        values: number of values V; the mask's id is V.
        length: number of positions L.
    """

    values: int = 16
    length: int = 8

    def __post_init__(self) -> None:
        if self.values < 2 or self.length < 1:
            raise UserError("Hidden agreement needs at least 2 values and 1 position.")

    @property
    def mask_id(self) -> int:
        """Id of the mask, the last of the V + 1 outcomes."""
        return self.values

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw ``n`` sequences, int64 of shape (n, L), from a generator of their own."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(self.values, (n, 1), generator=generator).repeat(1, self.length)

    def entropy(self) -> float:
        """Entropy of a sequence: log V."""
        return math.log(self.values)

    def total_correlation(self) -> float:
        """Total correlation of a sequence: (L - 1) log V."""
        return (self.length - 1) * math.log(self.values)

    def partition(self, components: Components) -> tuple[int, ...]:
        """Sizes of the value groups of a mixture.

        Args:
            components: M, split as evenly as possible (components beyond V would stay unused),
                or the sizes themselves. Even sizes are the best split: the cross-entropy grows
                with the sum of ``g log g``, which is convex in the sizes g.

        Returns:
            Group sizes that add up to V; group i holds consecutive values.

        Raises:
            UserError: if M is below 1 or the sizes do not add up to V.
        """
        if isinstance(components, int):
            if components < 1:
                raise UserError(f"A mixture needs at least 1 component, not {components}.")
            groups = min(components, self.values)
            small, larger = divmod(self.values, groups)
            return (small + 1,) * larger + (small,) * (groups - larger)
        sizes = tuple(components)
        if sum(sizes) != self.values or min(sizes) < 1:
            raise UserError(f"Group sizes must be positive and add up to {self.values}.")
        return sizes

    def log_transition(self, xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time) -> Tensor:
        """Exact log q(x_s | x_t).

        Args:
            xs_BL: ids at the later time s, V where masked.
            xt_BL: ids at the earlier time t.
            t: a number or shape (B,), in [0, 1).
            s: a number or shape (B,), in [t, 1].

        Returns:
            Shape (B,), float64; the reveal pattern is included, so a row sums to one over the
            (V + 1)^n outcomes of its n masked positions.

        Raises:
            UserError: if two visible tokens of ``xt_BL`` differ.
        """
        return self.log_reference(xs_BL, xt_BL, t, s, self.values)

    def log_reference(
        self, xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time, components: Components
    ) -> Tensor:
        """Log-probability log q*_M(x_s | x_t) of the best mixture of M product distributions.

        Arguments, shape and errors as :meth:`log_transition`, and:

        Args:
            components: number of components, or the group sizes of an uneven mixture (then the
                best mixture with these groups).
        """
        seen = reveal(xs_BL, xt_BL, t, s, self.mask_id)
        first_B, agree_B = self._shared_value(xt_BL)
        if not bool(agree_B.all()):
            raise UserError("No hidden-agreement sequence shows two different visible tokens.")
        # Some token is visible: every revealed one must repeat it, at no further cost.
        repeats_B = ((xs_BL == first_B[:, None]) | ~seen.revealed_BL).all(-1)
        log_known_B = torch.where(repeats_B, 0.0, -torch.inf).double()
        # All masked: choose the group with probability g / V, then r values uniformly inside it.
        sizes = torch.tensor(self.partition(components), device=xt_BL.device)
        group_V = torch.repeat_interleave(torch.arange(len(sizes), device=xt_BL.device), sizes)
        group_BL = torch.cat([group_V, group_V.new_full((1,), -1)])[xs_BL]  # the mask has none
        group_B = group_BL.amax(-1).clamp_min(0)
        same_B = ((group_BL == group_B[:, None]) | ~seen.revealed_BL).all(-1)
        log_size_B = sizes[group_B].double().log()
        log_open_B = log_size_B * (1 - seen.revealed_B) - math.log(self.values)
        log_open_B = log_open_B.masked_fill(~same_B, -torch.inf)
        log_open_B = log_open_B.masked_fill(seen.revealed_B == 0, 0.0)
        all_masked_B = seen.masked_B == self.length
        return seen.log_prob_B + torch.where(all_masked_B, log_open_B, log_known_B)

    def cross_entropy(self, t: Time, s: Time, components: Components) -> Tensor:
        """Optimal two-time loss at (t, s), averaged over x_t and x_s.

        The sum over the masked positions of V + 1 outcomes each, hence with the entropy h(p) of
        the reveals: ``L (1-t) h(p) + (1-t)^L sum_g (g/V) [L p log g + (1-(1-p)^L) log(V/g)]``.

        Returns:
            Float64, the broadcast shape of ``t`` and ``s``.
        """
        p, hidden, some = self._all_masked(t, s)
        spread, choice = self._spread(components), self._choice(components)
        reveals = self.length * (1.0 - as_time(t)) * binary_entropy(p)
        return reveals + hidden * (self.length * p * spread + some * choice)

    def nll(self, components: Components, t_max: float = 0.95) -> float:
        """Optimal two-time loss for t ~ U[0, t_max], s ~ U[t, 1].

        Then p ~ U[0, 1] independently of t, and everything integrates in closed form.
        """
        if not 0.0 < t_max <= 1.0:
            raise UserError(f"t_max must lie in (0, 1], not {t_max}.")
        length = self.length
        hidden = (1.0 - (1.0 - t_max) ** (length + 1)) / (t_max * (length + 1))
        spread, choice = self._spread(components), self._choice(components)
        values = length / 2 * spread + length / (length + 1) * choice
        return length * (1.0 - t_max / 2) / 2 + hidden * values

    def information(self, t: Time, s: Time, components: Components) -> Tensor:
        """I*(k; X_s | x_t) of the optimum at (t, s), averaged over x_t; at most log M."""
        _, hidden, some = self._all_masked(t, s)
        return hidden * some * self._choice(components)

    def captured_correlation(self, t: Time, s: Time, components: Components) -> Tensor:
        """TC* that the optimum's latent captures at (t, s), averaged over x_t."""
        p, hidden, some = self._all_masked(t, s)
        return hidden * (self.length * p - some) * self._choice(components)

    def in_support(self, x_BL: Tensor) -> Tensor:
        """True where all L tokens are one and the same value (a masked row is not in support)."""
        first_B = x_BL[:, :1]
        return (x_BL == first_B).all(-1) & (first_B[:, 0] >= 0) & (first_B[:, 0] < self.values)

    def recall(self, x_BL: Tensor) -> float:
        """Share of the V values that some valid row shows."""
        return x_BL[self.in_support(x_BL), 0].unique().numel() / self.values

    def value_entropy(self, x_BL: Tensor) -> float:
        """Plug-in entropy of the value among the valid rows; at most log V."""
        return plug_in_entropy(x_BL[self.in_support(x_BL), 0])

    def few_step_validity(self, steps: Steps, components: Components) -> float:
        """Share of valid sequences from a perfect sampler with a committed component.

        Args:
            steps: number of equal steps J, or a grid of times from 0 to 1.
            components: number of components M, or the group sizes.
        """
        return partition_agreement(self.length, self.partition(components), steps)

    def _spread(self, components: Components) -> float:
        """Mean log g: what one position still leaves open inside a component."""
        return sum(g / self.values * math.log(g) for g in self.partition(components))

    def _choice(self, components: Components) -> float:
        """Entropy of the component, sum (g/V) log(V/g)."""
        return math.log(self.values) - self._spread(components)

    def _all_masked(self, t: Time, s: Time) -> tuple[Tensor, Tensor, Tensor]:
        """p, the chance of the all-masked state, and that of any reveal from it."""
        p = reveal_probability(t, s)
        return p, (1.0 - as_time(t)) ** self.length, 1.0 - (1.0 - p) ** self.length

    def _shared_value(self, x_BL: Tensor) -> tuple[Tensor, Tensor]:
        """A visible value of each row (the mask if there is none), and whether all agree."""
        visible_BL = x_BL != self.mask_id
        value_B = torch.where(visible_BL, x_BL, -1).amax(-1)
        agree_B = ((x_BL == value_B[:, None]) | ~visible_BL).all(-1)
        return torch.where(value_B < 0, self.mask_id, value_B), agree_B
