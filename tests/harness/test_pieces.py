"""Texts under a context as sequences of the model's length."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lkf_plugin.data.prompt import Frame, frame_of
from lkf_plugin.data.text8 import Text8Tokenizer
from lkf_plugin.data.tokenizer import complete
from lkf_plugin.errors import UserError
from lkf_plugin.harness.pieces import Framing, content_key

WRAPPED, PADDED, WINDOWS = Frame(True, True), Frame(True, False), Frame(False, True)


def framing(frame: Frame, length: int = 8) -> Framing:
    return Framing(complete(Text8Tokenizer(), "text8"), length, frame)


def shown(framing: Framing, context: str, continuation: str) -> list[tuple[str, str]]:
    """(sequence, what is asked for): ``_`` where the network sees a mask, ``<>`` the frame."""
    ids = framing.ids
    special = {ids.mask: "_", ids.bos: "<", ids.eos: ">"}
    words = []
    for piece in framing.pieces(context, continuation):
        seen = [special.get(i) or framing.tokenizer.decode([i]) for i in piece.x_L.tolist()]
        asked = [word for word, free in zip(seen, piece.free_L.tolist(), strict=True) if free]
        words.append(("".join(seen), "".join(asked)))
    return words


@pytest.mark.parametrize(
    "frame, seen",
    [(WRAPPED, "<abcde_>"), (PADDED, "<abcde__"), (WINDOWS, "abcde___")],
)
def test_what_follows_the_text_is_open(frame: Frame, seen: str) -> None:
    assert shown(framing(frame), "abc", "de") == [(seen, "de")]


def test_the_end_of_a_long_context_is_kept() -> None:
    assert shown(framing(WINDOWS), "abcdefghij", "kl") == [("efghijkl", "kl")]


def test_every_token_of_a_long_text_is_asked_for_once() -> None:
    found = shown(framing(WINDOWS), "zz", "abcdefghijk")
    assert [asked for _, asked in found] == ["abcdefgh", "ijk"]
    assert found[1][0] == "defghijk"  # the rest sees what stands before it


def test_blanks_go_to_the_continuation() -> None:
    assert shown(framing(WINDOWS), "ab ", "c") == [("ab c____", " c")]


def test_an_empty_continuation_is_refused() -> None:
    with pytest.raises(UserError, match="no token to be scored"):
        list(framing(WINDOWS).pieces("ab", ""))


def test_an_answer_gets_its_places_and_the_context_the_rest() -> None:
    piece, places = framing(WINDOWS).prompt("abcdefgh", 2)
    assert (places.start, places.stop) == (6, 8) and piece.free_L.sum() == 2
    piece, places = framing(WINDOWS).prompt("abcdefgh", 64)
    assert (places.start, places.stop) == (4, 8)  # half of the sequence, no more
    _, places = framing(WRAPPED).prompt("a", 64)
    assert (places.start, places.stop) == (2, 7)


def test_an_answer_ends_at_a_stop_and_at_the_end_of_its_document() -> None:
    wrapped, windows = framing(WRAPPED), framing(WINDOWS)
    ids = wrapped.tokens("abc de")
    assert windows.answer(ids, [" "]) == "abc" and windows.answer(ids, ["x", ""]) == "abc de"
    assert wrapped.answer([*ids[:2], wrapped.ids.eos, *ids], []) == "ab"


def test_the_key_is_the_contexts() -> None:
    assert content_key("") == 0 and content_key("a") != content_key("b")
    keys = [piece.key for piece in framing(WINDOWS).pieces("ab", "cdefghijklmnop")]
    assert keys == [content_key("ab")] * 2


def test_the_frame_is_the_trainings() -> None:
    for framed, frame in ((True, PADDED), (False, Frame(False, False))):
        assert frame_of(SimpleNamespace(framed=framed), {"wrap": False}) == frame
