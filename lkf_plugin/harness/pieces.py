"""A text under a context as sequences of the model's length: pieces.

A piece is what the sampler would see with a prompt: the training frame, the context, the places
that are asked for, and masks in what is left. So what follows the text is left open, and the
likelihood of the text is that of a sampler that fills its places first.

Shape legend: L positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.prompt import Frame
from lkf_plugin.data.tokenizer import make_encoder, token_ids
from lkf_plugin.errors import UserError


class Piece(NamedTuple):
    """Tokens of which some are asked for.

    Attributes:
        x_L: ids; the mask in the places after the text.
        free_L: bool; the places that are asked for.
        key: of the random numbers, see ``content_key``.
    """

    x_L: Tensor
    free_L: Tensor
    key: int


def content_key(text: str) -> int:
    """64 bits of a text, 0 for the empty one.

    Random numbers go by the context, neither by the number of a request nor by the process: the
    choices of one question see the same times and masks, whoever computes them.
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") if text else 0


class Framing:
    """Texts as pieces.

    Args:
        tokenizer: a completed tokenizer.
        length: L.
        frame: of a training sequence.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, frame: Frame) -> None:
        self.tokenizer = tokenizer
        self.ids = token_ids(tokenizer)
        self.length = length
        self.frame = frame
        self.room = length - 2 if frame.framed else length
        self._encode = make_encoder(tokenizer, with_starts=False)

    def tokens(self, text: str) -> list[int]:
        """Ids of a text, as the corpus was encoded.

        Raises:
            UserError: it holds what the tokenizer has no token for.
        """
        if not text:
            return []
        try:
            ids: list[int] = self._encode([text])[0].ids.tolist()
        except Exception as error:  # the engine's own kind
            raise UserError(
                f"The run's tokenizer has no token for something in {text.strip()[:60]!r}: take a "
                "task in the words of its training text, or a run with a byte-level tokenizer."
            ) from error
        return ids

    def split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of both, where possible as the tokens of the joined text.

        Blanks at the end of the context go to the continuation, whose tokens may hold them. Where a
        token would reach over the border, each side is encoded alone.
        """
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        before, whole = self.tokens(context), self.tokens(context + continuation)
        if whole[: len(before)] == before:
            return before, whole[len(before) :]
        return before, self.tokens(continuation)

    def pieces(self, context: str, continuation: str) -> Iterator[Piece]:
        """The continuation, cut where it is longer than a sequence.

        Of the context the end is kept, as much as fits. A long continuation is cut into whole
        sequences and a rest, which sees as much of what stands before it as fits, so that every
        token is asked for once.
        """
        before, asked = self.split(context, continuation)
        if not asked:
            raise UserError(f"There is no token to be scored in {continuation!r}.")
        key = content_key(context)
        for first in range(0, len(asked), self.room):
            part = asked[first : first + self.room]
            given = (before + asked[:first])[::-1][: self.room - len(part)][::-1]
            yield self.piece(given, part, key)

    def piece(self, given: list[int], asked: list[int], key: int) -> Piece:
        """Ids given and ids asked for, in the frame."""
        start = 1 if self.frame.framed else 0
        middle = start + len(given)
        x_L = torch.full((self.length,), self.ids.mask)
        x_L[start:middle] = torch.tensor(given, dtype=torch.int64)
        x_L[middle : middle + len(asked)] = torch.tensor(asked)
        if self.frame.framed:
            x_L[0] = self.ids.bos
            if self.frame.full:
                x_L[-1] = self.ids.eos
        free_L = torch.zeros(self.length, dtype=torch.bool)
        free_L[middle : middle + len(asked)] = True
        return Piece(x_L, free_L, key)

    def prompt(self, context: str, wanted: int) -> tuple[Piece, slice]:
        """A start state whose gaps are to be filled, and which of them the answer is read from.

        Of the context the end is kept; the answer gets the places that it asks for, or half of the
        sequence if the context would leave less.
        """
        ids = self.tokens(context)
        places = min(wanted, max(self.room - len(ids), self.room // 2))
        given = ids[max(0, len(ids) - (self.room - places)) :]
        first = len(given) + (1 if self.frame.framed else 0)
        piece = self.piece(given, [self.ids.mask] * places, content_key(context))
        return piece, slice(first, first + places)

    def answer(self, ids: list[int], until: list[str]) -> str:
        """Text of filled places, up to the end of its document or the first stop."""
        if self.frame.framed and self.ids.eos in ids:
            ids = ids[: ids.index(self.ids.eos)]
        text = str(self.tokenizer.decode(ids, skip_special_tokens=self.frame.framed))
        ends = [text.find(stop) for stop in until if stop and stop in text]
        return text[: min(ends)] if ends else text
