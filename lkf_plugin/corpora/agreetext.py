"""AgreeText: a readable language with long-range agreement whose optimum is known exactly.

A sequence has C clauses of eight words, ``DET ADJ NOUN ADV VERB PREP MASS .``. All topic words of
the sequence must share one topic, and the determiner, noun and verb of a clause one number, so that
a sampler that draws words independently shows its errors to the naked eye::

    these salty foxes tunefully runs beyond soup .

Shape suffixes: B batch, L = 8C positions, C clauses, S carriers inside a clause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.corpora.agreetext_grammar import (
    CLAUSE_LENGTH,
    MASK_ID,
    NUMBERS,
    SLOTS,
    TOPICS,
    VOCAB_SIZE,
    WORDS,
    carriers,
    words,
)
from lkf_plugin.corpora.agreetext_optima import (
    clean_posterior_optimum,
    configurations,
    entropy_nats,
    few_step_validity,
    nelbo_optimum,
    total_correlation,
)
from lkf_plugin.corpora.plug_in import expected_plug_in_entropy, plug_in_entropy
from lkf_plugin.errors import UserError

__all__ = [
    "CLAUSE_LENGTH",
    "MASK_ID",
    "VOCAB_SIZE",
    "ConfigurationEntropy",
    "clean_posterior_optimum",
    "configuration",
    "configuration_entropy",
    "configurations",
    "entropy_nats",
    "faults",
    "few_step_validity",
    "nelbo_optimum",
    "render",
    "sample",
    "total_correlation",
    "valid",
    "words",
]

_RED, _DIM, _RESET = "\x1b[1;31m", "\x1b[2m", "\x1b[0m"
_MASK_TEXT = "____"


def sample(n: int, clauses: int, seed: int) -> Tensor:
    """Draw sequences of AgreeText, uniform on its support.

    Args:
        n: number of sequences B.
        clauses: clauses a sequence C; the length is L = 8C.
        seed: seed of this draw's own generator; the global random state stays as it is.

    Returns:
        Word ids of shape ``(n, 8 * clauses)``, int64, on the CPU.

    Raises:
        UserError: if ``n`` is negative or ``clauses`` is below 1.
    """
    if n < 0 or clauses < 1:
        raise UserError(f"AgreeText needs n >= 0 and clauses >= 1, not n={n}, clauses={clauses}.")
    generator = torch.Generator().manual_seed(seed)
    topic_BC = torch.randint(len(TOPICS), (n, 1), generator=generator).expand(n, clauses)
    number_BC = torch.randint(len(NUMBERS), (n, clauses), generator=generator)
    neutral_BC = torch.zeros_like(number_BC)
    shown = {"topic": topic_BC, "number": number_BC}
    columns = []
    for slot in SLOTS:
        lexeme_BC = torch.randint(slot.lexemes, (n, clauses), generator=generator)
        value_BC = shown.get(slot.feature, neutral_BC)
        columns.append(slot.offset + value_BC * slot.lexemes + lexeme_BC)
    return torch.stack(columns, dim=-1).flatten(1)


def faults(x_BL: Tensor) -> Tensor:
    """Mark the words that are wrong.

    A word is wrong if it does not fit its slot; or if it shows a topic other than the sequence's,
    or a number other than its clause's, where the majority of the fitting words decides (on a tie,
    the value among the tied that comes first). A mask is not wrong, only unfinished.

    Args:
        x_BL: ids of shape (B, 8C).

    Returns:
        Bool of shape (B, 8C).

    Raises:
        UserError: if the length is not a positive multiple of 8.
    """
    x_BCS, value_BCS, fits_BCS = _parse(x_BL)
    wrong_BCS = ~fits_BCS & (x_BCS != MASK_ID)
    topic_slots, number_slots = carriers("topic"), carriers("number")
    topic_BCS, topic_fits_BCS = value_BCS[..., topic_slots], fits_BCS[..., topic_slots]
    topic_B = _majority(topic_BCS.flatten(1), topic_fits_BCS.flatten(1), len(TOPICS))
    wrong_BCS[..., topic_slots] |= topic_fits_BCS & (topic_BCS != topic_B[:, None, None])
    number_BCS, number_fits_BCS = value_BCS[..., number_slots], fits_BCS[..., number_slots]
    number_BC = _majority(number_BCS, number_fits_BCS, len(NUMBERS))
    wrong_BCS[..., number_slots] |= number_fits_BCS & (number_BCS != number_BC[..., None])
    return wrong_BCS.flatten(1)


def valid(x_BL: Tensor) -> Tensor:
    """True for the sequences of the language: no fault and no mask.

    Args:
        x_BL: ids of shape (B, 8C).

    Returns:
        Bool of shape (B,).
    """
    return ~(faults(x_BL) | (x_BL == MASK_ID)).any(-1)


def configuration(x_BL: Tensor) -> Tensor:
    """Number the hidden features of valid sequences.

    Args:
        x_BL: ids of shape (B, 8C).

    Returns:
        Int64 of shape (B,): ``topic * 2^C + number bits`` (first clause highest) in
        ``[0, 4 * 2^C)``, and -1 for rows that are not valid.
    """
    _, value_BCS, _ = _parse(x_BL)
    index_B = value_BCS[:, 0, carriers("topic")[0]]
    for number_B in value_BCS[:, :, carriers("number")[0]].unbind(1):
        index_B = index_B * len(NUMBERS) + number_B
    return torch.where(valid(x_BL), index_B, -1)


@dataclass(frozen=True)
class ConfigurationEntropy:
    """How evenly the valid rows of a sample spread over the configurations, in nats.

    Attributes:
        plug_in: entropy of the empirical distribution over (topic, numbers).
        expected: mean of ``plug_in`` for as many perfect samples; what to compare it with.
        ceiling: log(4 * 2^C), reached by an endless perfect sample.
        rows: number of valid rows.
    """

    plug_in: float
    expected: float
    ceiling: float
    rows: int


def configuration_entropy(x_BL: Tensor) -> ConfigurationEntropy:
    """Measure the diversity of a sample; to be read beside its validity.

    Args:
        x_BL: ids of shape (B, 8C); rows that are not valid are left out.

    Returns:
        The plug-in entropy with what bounds it.
    """
    index_B = configuration(x_BL)
    index_B = index_B[index_B >= 0]
    cells = configurations(x_BL.shape[-1] // CLAUSE_LENGTH)
    return ConfigurationEntropy(
        plug_in=plug_in_entropy(index_B),
        expected=expected_plug_in_entropy(len(index_B), cells),
        ceiling=math.log(cells),
        rows=len(index_B),
    )


def render(tokens_L: Tensor, mark: bool = True, color: bool = False) -> str:
    """Write a sequence as text.

    Args:
        tokens_L: ids of shape (8C,).
        mark: point out the faults, as ``*word*``.
        color: point them out in red, by ANSI escapes, instead of by asterisks; masks are dimmed.

    Returns:
        The words, joined by spaces; a mask reads ``____``, an unknown id ``<id>``.
    """
    ids = tokens_L.tolist()
    wrong = faults(tokens_L[None])[0].tolist() if mark else [False] * len(ids)
    pieces = []
    for index, fault in zip(ids, wrong, strict=True):
        if index == MASK_ID:
            piece = f"{_DIM}{_MASK_TEXT}{_RESET}" if color else _MASK_TEXT
        else:
            piece = WORDS[index] if 0 <= index < VOCAB_SIZE else f"<{index}>"
        if fault:
            piece = f"{_RED}{piece}{_RESET}" if color else f"*{piece}*"
        pieces.append(piece)
    return " ".join(pieces)


def _parse(x_BL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split into clauses; give each word's feature value (junk where it does not fit) and fit."""
    if x_BL.dim() != 2 or x_BL.shape[1] == 0 or x_BL.shape[1] % CLAUSE_LENGTH:
        raise UserError(
            f"AgreeText rows hold a multiple of {CLAUSE_LENGTH} words, not shape {[*x_BL.shape]}."
        )
    x_BCS = x_BL.unflatten(1, (-1, CLAUSE_LENGTH))
    offset_S, size_S, lexemes_S = (
        torch.tensor(column, device=x_BL.device)
        for column in zip(*((slot.offset, slot.size, slot.lexemes) for slot in SLOTS), strict=True)
    )
    place_BCS = x_BCS - offset_S
    fits_BCS = (place_BCS >= 0) & (place_BCS < size_S)
    return x_BCS, place_BCS.div(lexemes_S, rounding_mode="floor"), fits_BCS


def _majority(value: Tensor, counted: Tensor, values: int) -> Tensor:
    """Most frequent of the counted values along the last dimension, the first of them on a tie."""
    width = value.shape[-1]
    votes = (value[..., None] == torch.arange(values, device=value.device)) & counted[..., None]
    # The first vote of a value sits at argmax; earlier ones break ties, as they weigh below 1.
    first = votes.int().argmax(-2)
    return (votes.sum(-2) * width + (width - 1 - first)).argmax(-1)
