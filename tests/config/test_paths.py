"""Paths mean the same wherever a run's settings are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.config import resolve_paths
from lkf_plugin.errors import UserError

Compose = Callable[..., DictConfig]


def test_paths_are_relative_to_where_the_command_was_typed(
    compose: Compose, tmp_path: Path
) -> None:
    (tmp_path / "judge").mkdir()
    config = compose("run_dir=here/../runs/a", "eval.gen_ppl_eval_model_name_or_path=judge")
    resolve_paths(config, tmp_path)
    assert config.run_dir == str(tmp_path / "runs" / "a")
    assert config.checkpointing.resume_ckpt_path == str(tmp_path / "runs/a/checkpoints/last.ckpt")
    assert config.eval.gen_ppl_eval_model_name_or_path == str(tmp_path / "judge")
    assert config.eval.checkpoint_path == ""
    other = compose()
    resolve_paths(other, tmp_path)
    assert other.eval.gen_ppl_eval_model_name_or_path == "gpt2-large"


def test_the_texts_own_paths_are_saved_absolute(compose: Compose, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    config = compose(
        *("data=text", "data.path=corpus/*.txt", "data.valid_path=../held.txt"),
        *("data.tokenizer_name_or_path=words", "data.cache_dir=cache"),
    )
    resolve_paths(config, tmp_path)
    assert config.data.path == str(tmp_path / "corpus/*.txt")
    assert config.data.valid_path == str(tmp_path.parent / "held.txt")
    assert config.data.cache_dir == str(tmp_path / "cache")
    assert config.data.tokenizer_name_or_path == str(tmp_path / "words")


def test_a_folder_called_like_a_tokenizer_is_not_taken_for_it(
    compose: Compose, tmp_path: Path
) -> None:
    (tmp_path / "train").mkdir()
    config = compose("data=text", "data.path=a.txt")
    resolve_paths(config, tmp_path)
    assert config.data.tokenizer_name_or_path == "train"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("run_dir=[1]", "run_dir=[1] must be a path."),
        ("run_dir=true", "run_dir=True must be a path."),
        ("init.from_checkpoint={a: 1}", "init.from_checkpoint="),
        ("run_dir='~nobodyofthatname/x'", "begins with the home folder of nobody"),
        ("eval.checkpoint_path=${nowhere}", "eval.checkpoint_path cannot be worked out"),
    ],
)
def test_what_is_no_path(compose: Compose, tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_paths(compose(override), tmp_path)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_a_number_is_a_name_too(compose: Compose, tmp_path: Path) -> None:
    config = compose("run_dir=2026")
    resolve_paths(config, tmp_path)
    assert config.run_dir == str(tmp_path / "2026")
