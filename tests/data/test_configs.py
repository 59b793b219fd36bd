"""The files of the config group ``data``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.data.corpus import CORPORA
from lkf_plugin.data.options import read_options

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
NAMES = sorted(path.stem for path in (CONFIGS / "data").glob("*.yaml"))


@pytest.fixture(autouse=True)
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    if not OmegaConf.has_resolver("mul"):
        OmegaConf.register_new_resolver("mul", lambda a, b: a * b)
    monkeypatch.delenv("LKF_CACHE", raising=False)


def composed(tmp_path: Path, name: str, *overrides: str) -> DictConfig:
    """A root configuration with only the group ``data`` and a length before it."""
    (tmp_path / "root.yaml").write_text(
        f"hydra:\n  searchpath: [file://{CONFIGS}]\nmodel:\n  length: 128\n"
        "defaults:\n  - _self_\n  - data: ???\n"
    )
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        return compose("root", [f"data={name}", *overrides])


def test_all_are_there() -> None:
    assert {"agreetext", "sotu", "text", "lm1b", "lm1b-wrap", "wikitext103", "text8"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_states_all_its_keys_and_is_legal(tmp_path: Path, name: str) -> None:
    config = composed(tmp_path, name, *(["data.path=x.txt"] if name == "text" else []))
    assert set(config.data) == set(CORPORA[config.data.kind].Settings.model_fields)
    found, _ = read_options(config)
    assert found.cache_dir == "~/.cache/lkf"


@pytest.mark.parametrize("name", NAMES)
def test_header_shows_the_command(name: str) -> None:
    text = (CONFIGS / "data" / f"{name}.yaml").read_text()
    assert f"python main.py data={name} " in text


def test_cache_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LKF_CACHE", "/somewhere")
    assert composed(tmp_path, "sotu").data.cache_dir == "/somewhere"


def test_agreetext_sets_the_length(tmp_path: Path) -> None:
    config = composed(tmp_path, "agreetext", "data.clauses=8")
    assert read_options(config)[1] == 64


def test_lm1b_differs_from_its_wrapped_twin_in_wrap_only(tmp_path: Path) -> None:
    plain, packed = (dict(composed(tmp_path, name).data) for name in ("lm1b", "lm1b-wrap"))
    assert {key for key in plain if plain[key] != packed[key]} == {"wrap"}
    assert (plain["wrap"], plain["valid_split"]) == (False, "test")
