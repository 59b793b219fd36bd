"""Malformed values, each told in one sentence with status 2 before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin import cli

Compose = Callable[..., DictConfig]
LKF = ("model=lkf-tiny", "loss=mixture")
DUO = ("method=duo",)
COSINE = ("lr_scheduler=cosine_decay_warmup",)
LINEAR = ("lr_scheduler=linear_decay",)
TEXT = ("data=text", "data.path=book.txt")
TWO_TIME = ("model=lkf", "loss=two_time", "model.trunk=native", "time_conditioning=true")
FROM_1 = "must be a whole number of at least 1"
FROM_0 = "must be a whole number of at least 0"
AT_LEAST_0 = "must be a number of at least 0"
ABOVE_0 = "must be a number above 0"
SWITCH = "must be true or false"

# the setting, what must be composed with it, what must be said of it
MALFORMED: list[tuple[str, tuple[str, ...], str]] = [
    # what is run
    ("mode=fly", (), "is unknown: take train, ppl_eval or sample_eval"),
    ("mode=1", (), "is unknown"),
    ("mode=null", (), "is unknown"),
    ("host=cloud", (), "is unknown: take auto, mdlm or builtin"),
    ("host=[mdlm]", (), "is unknown"),
    ("seed=-1", (), "must be a whole number from 0 to 4294967295"),
    ("seed=4294967296", (), "must be a whole number from 0 to 4294967295"),
    ("seed=1.5", (), "must be a whole number"),
    ("seed=abc", (), "must be a whole number"),
    ("seed=true", (), "must be a whole number"),
    ("run_dir=", (), "must be a path that is not empty"),
    ("run_dir=null", (), "must be a path"),
    ("run_dir=[a,b]", (), "must be a path"),
    ("run_dir=true", (), "must be a path"),
    ("parameterization=score", (), "is unknown: take subs, d3pm, sedd, ar or mean"),
    ("parameterization=mean", (), "parameterization is subs for the model's own method"),
    ("backbone=unet", (), "is unknown: take dit, dimamba, ar or hf_dit"),
    ("diffusion=gaussian", (), "is unknown: take absorbing_state or uniform_state"),
    ("diffusion=uniform_state", (), "take method=duo"),
    ("time_conditioning=yes_please", (), SWITCH),
    ("time_conditioning=1", (), SWITCH),
    ("subs_masking=0", (), SWITCH),
    ("T=-1", (), FROM_0),
    ("T=2.5", (), FROM_0),
    ("T=many", (), FROM_0),
    ("+nonsense=1", (), "is no setting"),
    ("+sed=1", (), "did you mean seed"),
    ("wandb=yes", (), "wandb=yes must be null, or a group of arguments"),
    ("callbacks.step_checkpoint=7", (), "a group of entries with a _target_ each"),
    ("callbacks.lr_monitor._target_=1x", (), "a group of entries with a _target_ each"),
    ("logger.csv=7", (), "a group of entries with a _target_ each"),
    # model
    ("model.type=cnn", (), "is unknown: take ddit or lkf"),
    ("model.name=", (), "must be text that is not empty"),
    ("model.n_blocks=0", (), FROM_1),
    ("model.n_blocks=abc", (), FROM_1),
    ("model.n_blocks=1.5", (), FROM_1),
    ("model.n_blocks=inf", (), FROM_1),
    ("model.hidden_size=-768", (), FROM_1),
    ("model.hidden_size=null", (), FROM_1),
    ("model.hidden_size=[1]", (), FROM_1),
    ("model.hidden_size={a: 1}", (), FROM_1),
    ("model.n_heads=0", (), FROM_1),
    ("model.n_heads=7", (), "must be a multiple of model.n_heads=7"),
    ("model.cond_dim=no", (), FROM_1),
    ("model.length=0", (), FROM_1),
    ("model.length=2", TEXT, "must be a whole number of at least 3"),
    ("model.dropout=null", (), "must be a number in [0, 1)"),
    ("model.dropout=1", (), "must be a number in [0, 1)"),
    ("model.dropout=-0.1", (), "must be a number in [0, 1)"),
    ("model.dropout=nan", (), "must be a number in [0, 1)"),
    ("model.tie_word_embeddings=maybe", (), SWITCH),
    ("model.scale_by_sigma=2", (), SWITCH),
    ("model.activation_checkpointing=on_gpu", (), SWITCH),
    ("model.num_components=0", LKF, FROM_1),
    ("model.num_components=2.5", LKF, FROM_1),
    ("model.num_components=true", LKF, FROM_1),
    ("model.latent_blocks=0", LKF, FROM_1),
    ("model.latent_blocks=5", LKF, "must lie between 1 and model.n_blocks=4"),
    ("model.trunk=oak", LKF, "is unknown: take matched or native"),
    ("model.latent_emb_std=0", LKF, ABOVE_0),
    ("model.latent_film_std=-1", LKF, AT_LEAST_0),
    ("model.open_gates=ajar", LKF, SWITCH),
    ("model.compile_blocks=3", LKF, SWITCH),
    ("+model.depth=3", LKF, "is no setting"),
    ("+model.trunk=native", (), "is not read by MDLM's own network"),
    # loss
    ("loss.name=hinge", (), "is unknown: take mdlm, mixture or two_time"),
    ("loss.chunk_rows=0", LKF, FROM_1),
    ("loss.token_head=heavy", LKF, "is unknown: take auto, mdlm, full, chunked, torch, liger or"),
    ("loss.lambda_ent=abc", LKF, "must be a number"),
    ("loss.lambda_lb=inf", LKF, "must be a number"),
    ("loss.backward=sideways", LKF, "is unknown: take dense, two_phase or drawn"),
    ("loss.threshold=1", LKF, "must be a number in [0, 1)"),
    ("loss.drawn=0", LKF, FROM_1),
    ("loss.drawn=1.5", LKF, FROM_1),
    ("loss.keep_above=2", LKF, "must be a number from 0 to 1"),
    ("loss.form=odd", TWO_TIME, "is unknown: take analytic or learned"),
    ("loss.t_max=1", TWO_TIME, "must be a number between 0 and 1"),
    ("loss.t_max=late", TWO_TIME, "must be a number between 0 and 1"),
    # training and optimizer
    ("training.ema=abc", (), "must be a number from 0 to 1"),
    ("training.ema=-0.1", (), "must be a number from 0 to 1"),
    ("training.ema=1.1", (), "must be a number from 0 to 1"),
    ("training.sampling_eps=0", (), "must be a number between 0 and 1"),
    ("training.antithetic_sampling=null", (), SWITCH),
    ("optim.name=sgd", (), "is unknown: take adamw or muon"),
    ("optim.lr=abc", (), AT_LEAST_0),
    ("optim.lr=-1", (), AT_LEAST_0),
    ("optim.lr=nan", (), AT_LEAST_0),
    ("optim.lr=[1e-3]", (), AT_LEAST_0),
    ("optim.muon_lr=-1", (), AT_LEAST_0),
    ("optim.weight_decay=-0.1", (), AT_LEAST_0),
    ("optim.beta1=1.5", (), "must be a number in [0, 1)"),
    ("optim.beta2=1", (), "must be a number in [0, 1)"),
    ("optim.eps=0", (), ABOVE_0),
    ("+optim.momentum=0.9", (), "is no setting"),
    ("lr_scheduler.num_warmup_steps=-1", (), FROM_0),
    ("lr_scheduler.num_warmup_steps=soon", (), FROM_0),
    ("lr_scheduler.warmup_steps=-1", COSINE, AT_LEAST_0),
    ("lr_scheduler.final_lr=abc", COSINE, AT_LEAST_0),
    ("lr_scheduler.decay_fraction=0", LINEAR, "must be a number in (0, 1]"),
    ("lr_scheduler.total_steps=0", LINEAR, FROM_1),
    ("lr_scheduler._target_=''", (), "must be the dotted name"),
    ("noise.type=cosine", (), "must be loglinear"),
    ("noise.sigma_max=big", (), ABOVE_0),
    ("init.from_checkpoint=true", LKF, "must be a path"),
    ("strategy._target_=5", (), "must be the dotted name"),
    # loader and trainer
    ("loader.global_batch_size=0", (), FROM_1),
    ("loader.batch_size=abc", (), FROM_1),
    ("loader.batch_size=100", (), "is not loader.batch_size=100"),
    ("loader.eval_batch_size=-2", (), FROM_1),
    ("loader.num_workers=-1", (), FROM_0),
    ("loader.num_workers=two", (), FROM_0),
    ("loader.pin_memory=perhaps", (), SWITCH),
    ("trainer.max_steps=0", (), FROM_1),
    ("trainer.max_steps=-1", (), FROM_1),
    ("trainer.max_steps=1e40", (), FROM_1),
    ("trainer.accelerator=abacus", (), "is unknown: take cpu, cuda, gpu or auto"),
    ("trainer.accelerator=abacus", ("mode=sample_eval",), "is unknown"),
    ("trainer.devices=-1", (), FROM_1),
    ("trainer.devices=all", (), FROM_1),
    ("trainer.num_nodes=0", (), FROM_1),
    ("trainer.precision=8-bit", (), "must be 32-true, 32, bf16-mixed"),
    ("trainer.precision=fp16", ("mode=sample_eval",), "must be 32-true, 32, bf16-mixed"),
    ("trainer.precision=64-true", ("mode=sample_eval",), "mode=sample_eval takes 32-true"),
    ("trainer.accumulate_grad_batches=0", (), FROM_1),
    ("trainer.gradient_clip_val=-1", (), "must be a number of at least 0, or null"),
    ("trainer.gradient_clip_val=abc", (), "must be a number of at least 0, or null"),
    ("trainer.val_check_interval=0.5", (), "must be a whole number of micro-batches"),
    ("trainer.val_check_interval=never", (), ABOVE_0),
    ("trainer.check_val_every_n_epoch=1", (), "must be null"),
    ("trainer.num_sanity_val_steps=-2", (), "must be a whole number of at least -1"),
    ("trainer.log_every_n_steps=often", (), FROM_0),
    ("trainer.limit_train_batches=5", (), "trainer.max_steps"),
    ("trainer.limit_val_batches=-1", (), "a share of all of them from 0.0 to 1.0"),
    ("trainer.limit_val_batches=1.5", (), "a share of all of them from 0.0 to 1.0"),
    ("trainer.limit_val_batches=true", (), "a share of all of them from 0.0 to 1.0"),
    ("trainer._target_=null", (), "must be the dotted name"),
    ("+trainer.strategy=ddp", (), "is set by the run itself"),
    ("checkpointing.every_n_steps=0", (), FROM_1),
    ("checkpointing.keep_last=-1", (), FROM_0),
    ("checkpointing.save_dir=''", (), "must be a path that is not empty"),
    ("checkpointing.resume_from_ckpt=always", (), SWITCH),
    # sampling, decoding, judging
    ("sampling.steps=0", (), FROM_1),
    ("sampling.steps=abc", (), FROM_1),
    ("sampling.predictor=oracle", (), "is unknown: take ddpm_cache, ddpm, analytic"),
    ("sampling.predictor=euler", (), "is not there for the model's own method"),
    ("sampling.eps=2", (), "must be a number in [0, 1)"),
    ("sampling.eps=-1e-5", (), "must be a number in [0, 1)"),
    ("sampling.num_sample_batches=0", (), FROM_1),
    ("sampling.num_sample_log=-1", (), FROM_0),
    ("sampling.prompt=[a]", (), "must be text"),
    ("sampling.noise_removal=some", (), SWITCH),
    ("sampling.compile_mode=fast", (), "is unknown: take null, default, reduce-overhead"),
    ("decode.policy=guess", (), "is unknown: take auto, mdlm, best_of_m"),
    ("decode.temperature=abc", (*LKF, "decode=commit"), ABOVE_0),
    ("decode.temperature=0", (*LKF, "decode=commit"), ABOVE_0),
    ("decode.component=speaker", (*LKF, "decode=commit"), "must be router, random, or a"),
    ("decode.component=8", (*LKF, "decode=commit"), "a component from 0 to 7"),
    ("decode.component=1.5", (*LKF, "decode=commit"), "must be router, random, or a"),
    ("decode.selector=best", (*LKF, "decode=best_of_m"), "is unknown: take nelbo, evidence"),
    ("decode.score=bleu", (*LKF, "decode=best_of_m"), "is unknown: take nelbo or evidence"),
    ("decode.score_draws=0", (*LKF, "decode=best_of_m"), FROM_1),
    ("decode.min_prior=2", (*LKF, "decode=best_of_m"), "from 0 to 1, or null"),
    ("decode.shared_noise=half", (*LKF, "decode=best_of_m"), SWITCH),
    ("decode.num_candidates=none", (*LKF, "decode=best_of_n"), FROM_1),
    ("decode.calibration_samples=0", (*LKF, "decode=calibrated"), FROM_1),
    ("decode.switch_step=-1", (*LKF, "decode=deferred"), FROM_0),
    ("decode.probe_step=x", (*LKF, "decode=probe"), FROM_0),
    ("+decode.beams=4", LKF, "is no setting"),
    ("eval.perplexity_batch_size=0", (), FROM_1),
    ("eval.disable_ema=2", (), SWITCH),
    ("eval.checkpoint_path=[a]", (), "must be a path"),
    ("eval.gen_ppl_eval_model_name_or_path={a: 1}", (), "must be a path"),
    # methods
    ("method.name=gan", (), "is unknown: take ar, auto, dcd, di4c, duo, lkf, "),
    ("method.start=end", ("method=ar", "model=ar"), "is unknown: take mask or data"),
    ("method.float64_draws=5", DUO, SWITCH),
    ("method.last_pass=random", DUO, "is unknown: take greedy, ancestral or none"),
    ("method.curriculum.columns=0", DUO, FROM_1),
    ("method.curriculum.gamma_min=low", DUO, "must be a number, or null"),
    ("method.curriculum.end=-1", DUO, FROM_0),
    ("method.curriculum=off", DUO, "must be a group of settings"),
    # data
    ("data.kind=video", (), "is unknown"),
    ("data.kind=[text]", (), "data.kind"),
    ("data.clauses=0", ("model.length=8",), "must be a whole number from 1 to 1000"),
    ("data.train_sequences=many", (), "must be a whole number"),
    ("data.wrap=1", TEXT, "must be true or false"),
    ("data.wrap=1", (), "must be true: this corpus fills every sequence"),
    ("data.valid_fraction=2", TEXT, "must be a number in (0, 0.5]"),
    ("data.vocab_size=big", TEXT, "must be a whole number"),
    ("data.layout=grid", TEXT, "is unknown"),
    ("data.path=[a,b]", ("data=text",), "must be a path"),
    ("+data.colour=red", TEXT, "is not an option of data.kind=text"),
]


@pytest.fixture
def refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[[DictConfig], str]:
    """What the command line says of a configuration that it must refuse."""
    monkeypatch.chdir(tmp_path)
    check = cli.validate

    def only_check(config: DictConfig, host: str) -> None:
        check(config, host)
        raise AssertionError("the configuration was taken")

    monkeypatch.setattr(cli, "validate", only_check)

    def told(config: DictConfig) -> str:
        with pytest.raises(SystemExit) as stop, cli._plain_words():
            cli.run(config)
        assert stop.value.code == 2
        assert list(tmp_path.iterdir()) == [], "something was written"
        return capfd.readouterr().err

    return told


def test_there_are_many() -> None:
    assert len(MALFORMED) >= 150
    assert len({(setting, others) for setting, others, _ in MALFORMED}) == len(MALFORMED)


@pytest.mark.parametrize(
    ("setting", "others", "sentence"), MALFORMED, ids=[f"{m[0]} {m[1][:1]}" for m in MALFORMED]
)
def test_malformed(
    compose: Compose,
    refusal: Callable[[DictConfig], str],
    setting: str,
    others: tuple[str, ...],
    sentence: str,
) -> None:
    key, _, value = setting.lstrip("+").partition("=")
    start = ("host=builtin", "trainer.devices=1", "trainer.accelerator=cpu", *others)
    if key == "data.kind":  # Hydra would take it for a change of the group's file
        config = compose(*start)
        config.data.kind = value
    else:
        config = compose(*start, setting)
    said = refusal(config)
    assert said.startswith("error: ") and said.count("\n") == 1
    assert key.split(".")[-1] in said and sentence in said
    assert len(said) < 400
