"""Settings that exclude each other, and what a host has not, get one sentence each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.config import validate
from lkf_plugin.errors import UserError

Compose = Callable[..., DictConfig]
LKF = ("model=lkf-tiny", "loss=mixture")
TWO_TIME = ("model=lkf", "loss=two_time", "model.trunk=native", "time_conditioning=true")

MISTAKES = [
    (("mode=fly",), "mode=fly is unknown: take train, ppl_eval or sample_eval"),
    (
        (*LKF, "model.num_components=0"),
        "model.num_components=0 must be a whole number of at least 1",
    ),
    ((*LKF, "model.latent_blocks=5"), "model.latent_blocks=5 must lie between 1 and"),
    ((*LKF, "model.trunk=oak"), "model.trunk=oak is unknown: take matched or native"),
    ((*LKF, "T=1000"), "set T=0"),
    ((*LKF, "loss.token_head=heavy"), "loss.token_head=heavy is unknown"),
    ((*LKF, "loss.backward=drawn", "loss.token_head=mdlm"), "take loss.token_head=auto"),
    ((*LKF, "loss.backward=two_phase", "loss.threshold=0.2"), "must lie in [0, 1 / M)"),
    ((*LKF, "loss.backward=drawn", "loss.drawn=0"), "loss.drawn=0 must be a whole number"),
    ((*LKF, "loss.backward=drawn", "loss.keep_above=2"), "a number from 0 to 1"),
    (("model.n_heads=7",), "multiple of model.n_heads=7"),
    (("model.dropout=1.5",), "model.dropout=1.5"),
    (("loss=two_time",), "take model=lkf"),
    (("loss=mixture",), "take model=lkf"),
    (("model=lkf", "loss=mdlm"), "take loss=mixture"),
    (("model=lkf", "loss=two_time"), "set model.trunk=native and time_conditioning=true"),
    ((*TWO_TIME, "loss.form=odd"), "loss.form=odd is unknown"),
    ((*TWO_TIME, "loss.t_max=1"), "loss.t_max=1 must be a number between 0 and 1"),
    (("training.importance_sampling=true", "training.change_of_variables=true"), "exclude"),
    (("loader.batch_size=100",), "loader.global_batch_size=512 is not"),
    (("loader.batch_size=0",), "must be a whole number of at least 1"),
    (("trainer.devices=-1",), "must be a whole number of at least 1"),
    (("trainer.limit_train_batches=5",), "trainer.max_steps"),
    (("trainer.val_check_interval=0.5",), "trainer.val_check_interval=0.5"),
    (("trainer.check_val_every_n_epoch=1",), "must be null"),
    (("sampling.predictor=analytic",), "host=mdlm"),
    (("sampling.semi_ar=true",), "host=mdlm"),
    (("sampling.compile_mode=fast",), "reduce-overhead"),
    (("sampling.compile_mode=default", "model=small", "loss=mdlm"), "decode=commit"),
    (("sampling.compile_mode=default", *LKF, "model.num_components=1"), "decode=commit"),
    (("sampling.compile_mode=default", "method=sedd"), "decode=commit"),
    (("parameterization=sedd",), "host=mdlm"),
    (("strategy=fsdp",), "training.ema=0"),
    (("strategy=fsdp2", "optim.name=muon"), "optim.name=adamw"),
    (("strategy=fsdp2", "method=sdtt", "method.teacher=a.ckpt", "trainer.max_steps=7000"),
     "does not shard a teacher"),
    (("model.tie_word_embeddings=true",), "no effect"),
    (("run_dir=${nowhere}",), "cannot be worked out"),
    (("model=lkf", "loss=mixture", "+model.rings=3"), "model.rings is no setting"),
    (("+model.trunk=native",), "model.trunk=native is not read by MDLM's own network"),
    (("+model.open_gates=true",), "model.open_gates=true is not read by MDLM's own network"),
    (("+model.num_components=4",), "model.num_components=4 is not read by MDLM's own network"),
    (("experiment=agreetext_baseline", "method=auto"), "is not read by MDLM's own network"),
    (("experiment=agreetext_baseline", "method=ar"), "model.trunk=native must be null"),
    (("experiment=sotu_ar", "model.local_heads=true"), "model.local_heads=true must be false"),
    (("method=sedd", "+model.latent_blocks=2"), "is not read by the network of this method"),
    (("loss.token_head=chunked",), "loss.token_head=chunked is unknown: take auto or mdlm"),
    (("loss.lambda_ent=0.1",), "loss.lambda_ent=0.1 must be 0: loss=mdlm has no router"),
    (("init.from_checkpoint=w.ckpt",), "is not read by MDLM's own network: take method=mdlm"),
    ((*TWO_TIME, "loss.form=learned", "loss.token_head=mdlm"), "take loss.token_head=auto"),
    ((*LKF, "decode=commit", "decode.component=8"), "a component from 0 to 7"),
    (("mode=sample_eval", "trainer.precision=64-true"), "mode=sample_eval takes 32-true"),
    (("+trainer.strategy=ddp",), "trainer.strategy is set by the run itself: use strategy"),
    (("+trainer.speed=3",), "no argument of Lightning's Trainer"),
    (
        ("lr_scheduler=cosine_decay_warmup", "lr_scheduler.warmup_steps=1_000_000"),
        "must be less than lr_scheduler.total_steps=1000000",
    ),
    (("loss=mixture", "model=lkf", "method=duo"), "has a network without a latent"),
    (("method=ar", "sampling.prompt=x"), "cannot fill masks"),
    (("method=duo", "method.curriculum.start=9", "method.curriculum.end=3"), "must lie"),
    (("method=duo", "method.curriculum.gamma_min=0"), "must lie below gamma_max"),
    (("method=sedd", "T=10"), "continuous, uniform times"),
    (("method=sedd", "decode=commit"), "needs components"),
    (("data.clauses=5", "model.length=32"), "model.length=32 must be 8 * data.clauses"),
]
IN_MDLM = [
    (("optim.name=muon",), "optim.name=muon is not in MDLM"),
    (("T=10",), "T=10 gives NaN in MDLM, whose term at t = 1 / T is 0 / 0: take host=builtin"),
    (("parameterization=d3pm",), "T=0 does not go with parameterization=d3pm"),
    (("parameterization=sedd", "T=1000"), "needs continuous time, T=0"),
    (("parameterization=sedd", "training.importance_sampling=true"), "uniform times"),
    (("subs_masking=true",), "subs_masking=true is for parameterization=d3pm"),
    (("backbone=ar",), "do not go together"),
    (("parameterization=ar",), "do not go together"),
    (("model.activation_checkpointing=true",), "is not read by MDLM's own network"),
    (("sampling.prompt=x",), "sampling.prompt is not in MDLM's sampler"),
    (("init.from_checkpoint=w.ckpt",), "init.from_checkpoint starts a mixture"),
    ((*LKF, "backbone=dimamba"), "takes the place of backbone=dit"),
    (("method=sedd",), "runs on the built-in host"),
    (("diffusion=uniform_state",), "diffusion is absorbing_state in MDLM"),
]


@pytest.mark.parametrize(("overrides", "sentence"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistake(compose: Compose, overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(compose("trainer.devices=1", *overrides), "builtin")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(("overrides", "sentence"), IN_MDLM, ids=lambda v: str(v)[:40])
def test_mistake_in_mdlm(compose: Compose, overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(compose("trainer.devices=1", *overrides), "mdlm")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("host", ["builtin", "mdlm"])
def test_no_gpu_is_said_before_anything_is_loaded(
    compose: Compose, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="trainer.accelerator=cuda needs a CUDA GPU"):
        validate(compose("trainer.accelerator=cuda", "trainer.devices=1"), host)


def test_what_was_typed_is_named_before_what_follows_from_it(compose: Compose) -> None:
    """A batch size derived from a wrong number of devices is not the mistake."""
    with pytest.raises(UserError, match="^trainer.devices=-2 must"):
        validate(compose("trainer.devices=-2"), "builtin")
    with pytest.raises(UserError, match="^model.hidden_size=wide must"):
        validate(compose("model.hidden_size=wide", "trainer.accelerator=cpu"), "builtin")


def test_a_smaller_batch_needs_no_sums(compose: Compose) -> None:
    """Validation moves to the end of the step in which it falls."""
    sizes = ("loader.global_batch_size=512", "trainer.devices=1")
    config = compose(*sizes, "loader.batch_size=32", "trainer.val_check_interval=100")
    validate(config, "builtin")
    assert config.trainer.accumulate_grad_batches == 16
    assert config.trainer.val_check_interval == 112
    usual = compose(*sizes, "loader.batch_size=32")
    validate(usual, "builtin")
    assert usual.trainer.val_check_interval == 10_000 * 16  # every 10,000 steps, as ever


def test_values_get_their_types(compose: Compose) -> None:
    config = compose(
        *("trainer.max_steps=1e3", "optim.lr='1e-3'", "model.name=7", "trainer.precision=32"),
        *("trainer.devices=1", "lr_scheduler=cosine_decay_warmup", "wandb=null"),
    )
    settings = validate(config, "builtin")
    assert (config.trainer.max_steps, config.optim.lr) == (1000, 1e-3)
    assert type(config.trainer.max_steps) is int and type(config.optim.lr) is float
    assert config.model.name == "7" and config.trainer.precision == "32"
    assert OmegaConf.is_interpolation(config.lr_scheduler, "total_steps")
    assert settings.trainer.max_steps == 1000 and settings.optim.lr == 1e-3


def test_further_arguments_of_lightnings_trainer(compose: Compose) -> None:
    validate(compose("+trainer.deterministic=true", "trainer.devices=1"), "builtin")


def test_native_trunk_with_either_time_conditioning(compose: Compose) -> None:
    for conditioned in ("true", "false"):
        validate(compose(*LKF, "model.trunk=native", f"time_conditioning={conditioned}"), "builtin")


def test_mdlm_may_do_what_the_builtin_host_cannot(compose: Compose) -> None:
    validate(compose("sampling.predictor=analytic", "trainer.devices=1"), "mdlm")
