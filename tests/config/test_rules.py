"""Mistakes in the configuration get one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.config import resolve_paths, validate
from lkf_plugin.errors import UserError

Compose = Callable[..., DictConfig]
LKF = ("model=lkf-tiny", "loss=mixture")
TWO_TIME = ("model=lkf", "loss=two_time", "model.trunk=native", "time_conditioning=true")

MISTAKES = [
    (("mode=fly",), "mode=fly is unknown: take train, ppl_eval or sample_eval"),
    ((*LKF, "model.num_components=0"), "model.num_components=0 must be at least 1"),
    ((*LKF, "model.latent_blocks=5"), "model.latent_blocks=5 must lie between 1 and"),
    ((*LKF, "model.trunk=oak"), "model.trunk=oak is unknown: take matched or native"),
    ((*LKF, "T=1000"), "set T=0"),
    ((*LKF, "loss.token_head=heavy"), "loss.token_head=heavy is unknown"),
    ((*LKF, "loss.backward=drawn", "loss.token_head=mdlm"), "take loss.token_head=auto"),
    ((*LKF, "loss.backward=two_phase", "loss.threshold=0.2"), "must lie in [0, 1 / M)"),
    ((*LKF, "loss.backward=drawn", "loss.drawn=0"), "loss.drawn=0 must be a whole number"),
    ((*LKF, "loss.backward=drawn", "loss.keep_above=2"), "must lie between 0 and 1"),
    (("model.n_heads=7",), "multiple of model.n_heads=7"),
    (("model.dropout=1.5",), "model.dropout=1.5"),
    (("loss=two_time",), "take model=lkf"),
    (("loss=mixture",), "take model=lkf"),
    (("model=lkf", "loss=mdlm"), "take loss=mixture"),
    (("model=lkf", "loss=two_time"), "set model.trunk=native and time_conditioning=true"),
    ((*TWO_TIME, "loss.form=odd"), "loss.form=odd is unknown"),
    ((*TWO_TIME, "loss.t_max=1"), "loss.t_max=1 must lie between"),
    (("training.importance_sampling=true", "training.change_of_variables=true"), "exclude"),
    (("loader.batch_size=100",), "loader.global_batch_size=512 is not"),
    (("loader.batch_size=0",), "must be a whole number of at least 1"),
    (("trainer.devices=-1",), "must be a whole number of at least 1"),
    (("trainer.limit_train_batches=5",), "trainer.max_steps"),
    (("trainer.val_check_interval=0.5",), "trainer.val_check_interval=0.5"),
    (("trainer.check_val_every_n_epoch=1",), "must be null"),
    (("loader.batch_size=128", "trainer.val_check_interval=3"), "must be a multiple of"),
    (("sampling.predictor=analytic",), "host=mdlm"),
    (("sampling.semi_ar=true",), "host=mdlm"),
    (("sampling.compile_mode=fast",), "reduce-overhead"),
    (("sampling.compile_mode=default", "model=small", "loss=mdlm"), "decode=commit"),
    (("sampling.compile_mode=default", *LKF, "model.num_components=1"), "decode=commit"),
    (("sampling.compile_mode=default", "baseline=sedd"), "decode=commit"),
    (("parameterization=sedd",), "host=mdlm"),
    (("strategy=fsdp",), "training.ema=0"),
    (("model.tie_word_embeddings=true",), "no effect"),
    (("run_dir=${nowhere}",), "cannot be worked out"),
]


@pytest.mark.parametrize(("overrides", "sentence"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistake(compose: Compose, overrides: tuple[str, ...], sentence: str) -> None:
    config = compose("trainer.devices=1", *overrides)
    with pytest.raises(UserError) as caught:
        validate(config, "builtin")
    assert sentence in str(caught.value)


def test_native_trunk_with_either_time_conditioning(compose: Compose) -> None:
    for conditioned in ("true", "false"):
        validate(compose(*LKF, "model.trunk=native", f"time_conditioning={conditioned}"), "builtin")


def test_mdlm_may_do_what_the_builtin_host_cannot(compose: Compose) -> None:
    validate(compose("sampling.predictor=analytic", "trainer.devices=1"), "mdlm")


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
