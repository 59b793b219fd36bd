"""The expected strings were computed with MDLM's own functions at commit c112c52."""

from __future__ import annotations

import pytest

from lkf_plugin.data.detokenize import get_detokenizer
from lkf_plugin.errors import UserError

WIKITEXT = [
    (" = Robert <unk> = \n", " = Robert <unk> =\n"),
    (
        ' The boys \' team @-@ mates won 1 @,@ 234 to 3 @.@ 5 ( a record ) , and " very well " '
        "said so . \n",
        ' The boys\' team-mates won 1,234 to 3.5 (a record), and "very well" said so.\n',
    ),
    (
        "It 's 20 ° C ; he said : ' yes ' ! Why ? \n",
        "It's 20°C; he said:' yes'! Why?\n",
    ),
    (" = = = Notes [ 1 ] = = = \n", " === Notes [1] ===\n"),
    ("a /' 7/ b { x } N c", "a /'[0-9]/ b {x} 1 c"),
    ("", ""),
]
LM1B = [
    ('He said " hello there " , didn \'t he ?', 'He said "hello there", didn\'t he?'),
    (
        "See http : / / example.com / a ( now ) : it costs $ 5 or £ 4 .",
        "See http://example.com/a (now): it costs $5 or £4.",
    ),
    ("Stop ! Go ; wait . Then [ sic ] ' fine ' !", "Stop! Go; wait. Then [sic] 'fine'!"),
]


@pytest.mark.parametrize(("given", "expected"), WIKITEXT)
def test_wikitext_matches_mdlm(given: str, expected: str) -> None:
    assert get_detokenizer("wikitext")(given) == expected


@pytest.mark.parametrize(("given", "expected"), LM1B)
def test_lm1b_matches_mdlm(given: str, expected: str) -> None:
    assert get_detokenizer("lm1b")(given) == expected


def test_none_changes_nothing() -> None:
    assert get_detokenizer(None)(" a , b . \n") == " a , b . \n"


def test_unknown_name() -> None:
    with pytest.raises(UserError, match="wikitext"):
        get_detokenizer("ptb")
