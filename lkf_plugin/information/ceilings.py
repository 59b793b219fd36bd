"""How much a structure of latents can win in one step on a corpus: EM's held-out loss.

Where nothing is visible the best kernel of a structure is a context-free law, which EM fits. So no
network can do better in one step than this, up to EM's local optimum and what it overfits, and a
trained one should come close. The factorised ceiling is the entropy of unigrams.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from lkf_plugin.information.step import Estimate
from lkf_plugin.latents.em import ContextFreeLaw, fit
from lkf_plugin.latents.structure import Structure


def held_out(law: ContextFreeLaw, valid_NL: Tensor, window_batch: int = 256) -> Estimate:
    """Nats per token of held-out windows, with the standard error over windows."""
    nats_N = [-law.log_prob(x_BL) / x_BL.shape[1] for x_BL in valid_NL.split(window_batch)]
    values = [value for part in nats_N for value in part.tolist()]
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
    return Estimate(mean, math.sqrt(spread / len(values)))


def ceiling(
    structure: Structure[Any],
    train_tokens: Tensor,
    valid_tokens: Tensor,
    vocab_size: int,
    **options: Any,
) -> Estimate:
    """The best that a step of this structure can do at the all-mask state, nats per token.

    Args:
        structure: of any kind; ``Sequence(1)`` is the factorised step.
        train_tokens, valid_tokens: windows [N, L].
        vocab_size: V.
        options: of ``latents.em.fit``.
    """
    return held_out(fit(structure, train_tokens, vocab_size, **options), valid_tokens)
