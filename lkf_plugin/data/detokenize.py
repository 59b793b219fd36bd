r"""Undo the tokenization that LM1B and WikiText were published with.

The outputs are those of MDLM's ``lm1b_detokenizer`` and ``wt_detokenizer``, letter for letter,
oddities included, because perplexities on another text do not compare: WikiText's second rule,
for example, only ever matches a digit between slashes, and then writes its own pattern out.

A detokenizer is a table of rules applied from top to bottom. ``swap`` replaces a literal string,
``sub`` a regular expression, ``unpad(a, b)`` drops blanks inside a pair of marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lkf_plugin.errors import UserError

Rule = Callable[[str], str]


def swap(old: str, new: str) -> Rule:
    """Rule that replaces every literal ``old`` by ``new``."""
    return lambda text: text.replace(old, new)


def sub(pattern: str, replacement: str) -> Rule:
    """Rule that replaces every match of a regular expression."""
    compiled = re.compile(pattern)
    return lambda text: compiled.sub(replacement, text)


def unpad(opening: str, closing: str, inner: str) -> Rule:
    """Rule that drops the blanks next to a pair of marks; ``inner`` may not hold the closing."""
    left, right = re.escape(opening), re.escape(closing)
    return sub(rf"{left}\s*({inner}*?)\s*{right}", rf"{opening}\1{closing}")


def tight(opening: str, closing: str, inner: str) -> Rule:
    """Rule that drops exactly one blank on either side inside a pair of marks."""
    left, right = re.escape(opening), re.escape(closing)
    return sub(rf"{left} ({inner}+) {right}", rf"{opening}\1{closing}")


_DEGREE = "\N{DEGREE SIGN}"

WIKITEXT: tuple[Rule, ...] = (
    swap("s '", "s'"),
    sub(r"/' [0-9]/", "/'[0-9]/"),
    *(swap(f" @{mark}@ ", mark) for mark in "-,."),
    *(swap(f" {mark} ", f"{mark} ") for mark in ":;.!?,"),
    unpad("(", ")", r"[^)]"),
    unpad("[", "]", r"[^\]]"),
    unpad("{", "}", r"[^}]"),
    unpad('"', '"', r'[^"]'),
    unpad("'", "'", r"[^']"),
    *(swap(" ".join("=" * n), "=" * n) for n in (4, 3, 2)),
    swap(f" {_DEGREE} ", _DEGREE),
    swap(" \n", "\n"),
    swap("\n ", "\n"),
    swap(" N ", " 1 "),
    swap(" 's", "'s"),
)

LM1B: tuple[Rule, ...] = (
    *(swap(f"{scheme} : / / ", f"{scheme}://") for scheme in ("http", "https")),
    sub(r" '(\w+)", r"'\1"),
    sub(r" (\w+) \. ", r" \1. "),
    sub(r" (\w+) \.$", r" \1."),
    swap(" ? ", "? "),
    sub(r" \?$", "?"),
    swap(" ! ", "! "),
    sub(r" !$", "!"),
    *(swap(f" {mark} ", f"{mark} ") for mark in ",:;"),
    swap(" / ", "/"),
    tight('"', '"', r'[^"]'),
    tight("'", "'", r"[^']"),
    tight("(", ")", r"[^()]"),
    tight("[", "]", r"[^\[\]]"),
    swap("$ ", "$"),
    swap("£ ", "£"),
)

TABLES: dict[str, tuple[Rule, ...]] = {"wikitext": WIKITEXT, "lm1b": LM1B}
DETOKENIZERS = (None, *sorted(TABLES))  # what a setting may say


def get_detokenizer(name: str | None) -> Rule:
    """Gives the detokenizer of that name; ``None`` leaves text as it is.

    Raises:
        UserError: There is no such detokenizer.
    """
    if name is None:
        return lambda text: text
    if name not in TABLES:
        raise UserError(
            f"data.detokenizer={name} is unknown: take one of {', '.join(sorted(TABLES))} or null."
        )
    rules = TABLES[name]

    def apply(text: str) -> str:
        for rule in rules:
            text = rule(text)
        return text

    return apply
