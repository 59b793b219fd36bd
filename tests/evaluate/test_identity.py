"""A number's digest: every key of the groups that it depends on changes it, or says why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.evaluate.identity import (
    PROCESS,
    WITHOUT_EFFECT,
    decode_of,
    group,
    sampling_of,
    subject_of,
)
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.records.identity import identity_digest


def composed(*overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def other(value: Any) -> Any:
    """A value that is not this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "other"


def keys() -> list[tuple[str, str]]:
    """Every key of the groups, as the configuration has it with the network that has most."""
    config = composed("model=lkf", "loss=mixture", "method=duo")
    return [
        (name, str(key))
        for name in WITHOUT_EFFECT
        for key in config[name]
        if name != "decode"  # whose keys are those of DecodeOptions
    ]


def digest_of(config: DictConfig) -> str:
    """Of samples under a configuration, with everything that enters by another name left out."""
    subject = subject_of(config, "builtin", "checkpoint", "corpus", "tokenizer")
    settings = {
        "sampling": sampling_of(config, config.sampling.steps),
        "eval": group(config, "eval"),
        "training": group(config, "training"),
    }
    return identity_digest("samples", subject, settings)


@pytest.fixture(scope="module")
def config() -> DictConfig:
    return composed("model=lkf", "loss=mixture", "method=duo")


@pytest.mark.parametrize(("name", "key"), keys())
def test_every_key_of_a_group(config: DictConfig, name: str, key: str) -> None:
    changed = config.copy()
    OmegaConf.set_struct(changed, False)
    changed[name][key] = other(changed[name][key])
    assert (digest_of(changed) == digest_of(config)) == (key in WITHOUT_EFFECT[name])


def test_no_reason_is_left_over(config: DictConfig) -> None:
    taught = composed("method=sdtt")
    for name, reasons in WITHOUT_EFFECT.items():
        assert set(reasons) <= {*config[name], *taught[name]}, name
        assert all(len(reason) > 5 for reason in reasons.values())


def test_every_key_of_a_taught_method() -> None:
    """The place of a teacher says nothing, what it taught lies in the weights; all else counts."""
    taught = composed("method=sdtt")
    for key in taught.method:
        changed = taught.copy()
        changed.method[key] = other(changed.method[key])
        assert (digest_of(changed) == digest_of(taught)) == (key == "teacher"), key


@pytest.mark.parametrize("key", PROCESS)
def test_every_key_of_the_process(config: DictConfig, key: str) -> None:
    changed = config.copy()
    changed[key] = other(changed[key])
    assert digest_of(changed) != digest_of(config)


@pytest.mark.parametrize("field", list(DecodeOptions.model_fields))
def test_every_decoding_setting(field: str) -> None:
    def digest(settings: Mapping[str, Any]) -> str:
        return identity_digest("samples", {}, decode_of(settings, settings["policy"]))

    usual = DecodeOptions(policy="best_of_m").model_dump()
    values = {"policy": "commit", "component": 1, "selector": "evidence", "score": "evidence"}
    value = {**values, "min_prior": 0.0}.get(field)
    changed = {**usual, field: other(usual[field]) if value is None else value}
    assert digest(changed) != digest(usual)


def test_what_is_not_said_is_its_default() -> None:
    whole = decode_of(policy_settings("best_of_m"), "best_of_m")
    assert decode_of({"policy": "best_of_m"}, "best_of_m") == whole
    auto = composed().decode
    assert decode_of({**auto, "policy": "best_of_m"}, "best_of_m") == whole


def test_an_own_sampler_depends_on_its_block() -> None:
    assert decode_of({"policy": "mdlm"}, "mdlm", own=True)["block"] == 8
    assert "block" not in decode_of({"policy": "commit"}, "commit")


def test_spelling_and_order_do_not_count() -> None:
    one = identity_digest("a", {"x": 1, "y": [1.0, None]}, {"eps": 8.0})
    assert one == identity_digest("a", {"y": [1, None], "x": 1.0}, {"eps": 8})
    others = [
        identity_digest("b", {"x": 1, "y": [1, None]}, {"eps": 8}),
        identity_digest("a", {"x": True, "y": [1, None]}, {"eps": 8}),
        identity_digest("a", {"x": 1, "y": [1, 0]}, {"eps": 8}),
        identity_digest("a", {"x": 1}, {"y": [1, None], "eps": 8}),
        identity_digest("a", {"x": "1", "y": [1, None]}, {"eps": 8}),
    ]
    assert len({one, *others}) == 6
