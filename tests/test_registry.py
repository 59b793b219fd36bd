"""Names, and files that register themselves."""

import sys

import pytest

from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.errors import UserError
from lkf_plugin.objective.objective import OBJECTIVES


def test_everything_in_the_folder_is_found():
    assert set(POLICIES) >= {"commit", "best_of_m", "best_of_n", "halving", "solo"}
    assert set(OBJECTIVES) == {"mixture", "two_time"}


def test_a_dotted_name_finds_a_file_anywhere(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text(
        "from lkf_plugin.decode.registry import policy\n"
        "@policy('silent_one')\n"
        "def silent_one(request, settings):\n    return settings\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert POLICIES["my_policies.silent_one"](None, {"a": 1}) == {"a": 1}
    sys.modules.pop("my_policies")
    POLICIES._entries.pop("silent_one")


def test_unknown_names_say_what_there_is():
    with pytest.raises(UserError, match="decoding policy wishful is unknown: take one of .*commit"):
        POLICIES["wishful"]
    with pytest.raises(UserError, match="no_such_module cannot be imported"):
        POLICIES["no_such_module.policy"]


def test_two_things_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two entries are called mixture"):
        OBJECTIVES.add("mixture")(int)
