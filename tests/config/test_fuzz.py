"""Whatever is put into whatever setting: it is valid, or one sentence says why not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.config import resolve_paths, validate
from lkf_plugin.errors import UserError
from lkf_plugin.runs.settings import flatten

Compose = Callable[..., DictConfig]
STARTS = (
    (),
    ("model=lkf-tiny", "loss=mixture", "decode=best_of_m"),
    ("method=duo",),
    ("model=lkf", "loss=two_time", "model.trunk=native", "lr_scheduler=cosine_decay_warmup"),
    ("data=text", "data.path=a.txt", "lr_scheduler=linear_decay", "logger=wandb"),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**64, -(2**70), 10**400, 0.5, -0.5, 1e-9, 1e300]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.sampled_from(
        ["", " ", "abc", "1e-3", "cpu", "none", "${nowhere}", "${.x}", "???", "~", "%"]
    ),
    st.sampled_from(["${seed}", "${trainer.max_steps}", "${mul:2,${seed}}", "${div_up:1,0}"]),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from(["a", "name", "_target_"]), SCALARS, max_size=2),
)


@pytest.fixture(scope="module")
def starts(compose: Compose) -> list[DictConfig]:
    return [compose("trainer.devices=1", "trainer.accelerator=cpu", *one) for one in STARTS]


def keys_of(config: DictConfig) -> list[str]:
    """Every setting, and every group."""
    leaves = list(flatten(OmegaConf.to_container(config, resolve=False)))
    groups = {leaf.rpartition(".")[0] for leaf in leaves} - {""}
    return sorted({*leaves, *groups})


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_valid_or_one_sentence(starts: list[DictConfig], data: st.DataObject) -> None:
    config = copy.deepcopy(starts[data.draw(st.integers(0, len(STARTS) - 1))])
    key = data.draw(st.sampled_from(keys_of(config)))
    value: Any = data.draw(VALUES)
    host = data.draw(st.sampled_from(["builtin", "mdlm"]))
    with open_dict(config):
        try:
            OmegaConf.update(config, key, value, merge=False, force_add=True)
        except (OmegaConfBaseException, ValueError):
            return  # OmegaConf itself takes no such value
    try:
        resolve_paths(config, "/somewhere")
        validate(config, host)
    except UserError as error:
        sentence = str(error)
        assert sentence.strip() and "\n" not in sentence, (key, value)
        assert len(sentence) < 600, (key, value)
