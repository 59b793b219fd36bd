"""The contract of hosts at run time; mypy holds the types of the built-in one and of the mixin."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.runs.common import build_module
from tests.cli.conftest import compose, tiny  # noqa: F401
from tests.host.contract import missing


@pytest.mark.parametrize("model", [(), ("model=lkf-tiny", "loss=mixture")])
def test_the_built_in_host_has_all_of_it(
    tiny: Callable[..., DictConfig],  # noqa: F811
    model: tuple[str, ...],
) -> None:
    module = build_module(tiny(*model), agreetext_tokenizer())
    assert missing(type(module), module) == set()


def test_what_a_host_lacks_is_seen() -> None:
    class Bare:
        config = None

    assert {"q_xt", "_sample_t", "_loss", "ema", "backbone", "draw_block"} <= missing(Bare, Bare())
    assert "config" not in missing(Bare, Bare())
