"""The names that users and other parts rely on, and that every YAML file composes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, UnsupportedInterpolationType

from lkf_plugin import cli
from lkf_plugin.config import RESOLVERS, validate
from lkf_plugin.runs.settings import flatten

Compose = Callable[..., DictConfig]
CONFIGS = Path(cli.config_folder())

KEYS = """
T backbone method.name diffusion host init.from_checkpoint
init.latents init.latents_steps mode parameterization run_dir seed
subs_masking
time_conditioning wandb
callbacks.forecast._target_
callbacks.lr_monitor._target_ callbacks.lr_monitor.logging_interval
callbacks.step_checkpoint._target_ callbacks.step_checkpoint.dirpath
callbacks.step_checkpoint.every_n_steps callbacks.step_checkpoint.keep_last
callbacks.step_checkpoint.monitor
checkpointing.every_n_steps checkpointing.keep_last checkpointing.resume_ckpt_path
checkpointing.resume_from_ckpt checkpointing.save_dir
decode.component decode.min_prior decode.num_candidates decode.policy decode.score_draws
decode.selector decode.shared_noise
eval.checkpoint_path eval.compute_generative_perplexity eval.compute_perplexity_on_sanity
eval.disable_ema eval.gen_ppl_eval_model_name_or_path eval.generate_samples
eval.perplexity_batch_size eval.replay eval.steps
loader.batch_size loader.eval_batch_size loader.eval_global_batch_size loader.global_batch_size
loader.num_workers loader.pin_memory
logger.csv._target_ logger.csv.save_dir
loss.backward loss.chunk_rows loss.drawn loss.keep_above loss.lambda_ent loss.lambda_lb loss.name
loss.threshold loss.token_head
lr_scheduler._target_ lr_scheduler.num_warmup_steps
model.activation_checkpointing model.block_components model.block_length
model.compile_blocks model.cond_dim model.dropout model.hidden_size
model.latent model.latent_blocks model.latent_emb_std model.latent_film_std model.latent_site
model.length model.local_heads
model.n_blocks model.n_heads model.name model.num_components model.open_gates model.router_reads
model.scale_by_sigma
model.sticky model.tie_word_embeddings
model.trunk model.type
noise.sigma_max noise.sigma_min noise.type
optim.beta1 optim.beta2 optim.eps optim.lr optim.muon_lr optim.name optim.weight_decay
sampling.compile_mode sampling.eps sampling.noise_removal sampling.num_sample_batches
sampling.num_sample_log
sampling.num_strides sampling.predictor sampling.prompt sampling.semi_ar sampling.steps
sampling.stride_length
strategy._args_ strategy._target_
trainer._target_ trainer.accelerator trainer.accumulate_grad_batches
trainer.check_val_every_n_epoch trainer.devices trainer.gradient_clip_val
trainer.limit_train_batches trainer.limit_val_batches trainer.log_every_n_steps trainer.max_steps
trainer.num_nodes trainer.num_sanity_val_steps trainer.precision trainer.val_check_interval
training.antithetic_sampling training.change_of_variables training.ema
training.importance_sampling training.sampling_eps
""".split()


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def test_key_list_is_frozen(compose: Compose) -> None:
    config = OmegaConf.to_container(compose("model=lkf", "loss=mixture"), resolve=True)
    keys = {key for key in flatten(config) if not key.startswith("data.")}
    assert keys == set(KEYS)


@pytest.mark.parametrize("name", options("model"))
def test_every_model_and_loss(compose: Compose, name: str) -> None:
    if not name.startswith("lkf"):
        validate(compose(f"model={name}", "loss=mdlm"), "builtin")
        return
    validate(compose(f"model={name}", "loss=mixture"), "builtin")
    both_times = ("model.trunk=native", "time_conditioning=true")
    validate(compose(f"model={name}", "loss=two_time", *both_times), "builtin")


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (group, name)
        for group in ("data", "decode", "logger", "strategy", "noise", "lr_scheduler", "callbacks")
        for name in options(group)
    ],
)
def test_every_other_file(compose: Compose, group: str, name: str) -> None:
    extra = ["training.ema=0"] if name == "fsdp" else []
    OmegaConf.to_container(compose(f"{group}={name}", *extra), resolve=True)


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_is_valid(compose: Compose, name: str) -> None:
    needed = ["data.path=novel.txt"] if name.startswith("own-text") else []
    needed += ["init.from_checkpoint=mdlm.ckpt", "data=wikitext103"] if name == "upcycle" else []
    validate(compose(f"experiment={name}", "trainer.devices=1", *needed), "builtin")


def test_every_group_has_been_looked_at() -> None:
    groups = {path.relative_to(CONFIGS).parts[0] for path in CONFIGS.glob("*/**/*.yaml")}
    seen = {"model", "loss", "data", "decode", "logger", "strategy", "noise", "lr_scheduler"}
    assert groups <= seen | {"callbacks", "experiment", "method", "hydra"}


def test_wandb_group_fills_mdlms_key(compose: Compose) -> None:
    config = compose("logger=wandb", "wandb.project=mine")
    assert config.wandb.project == "mine"
    assert set(config.logger) == {"csv"}


def test_mixture_differs_from_mdlm_in_named_keys_only(compose: Compose) -> None:
    """Side by side at the same size, model and loss are all that differs."""
    theirs = flatten(OmegaConf.to_container(compose("model=small", "loss=mdlm"), resolve=True))
    mine = flatten(OmegaConf.to_container(compose("model=lkf", "loss=mixture"), resolve=True))
    different = {k for k in mine.keys() | theirs.keys() if mine.get(k, "") != theirs.get(k, "")}
    ours = set(compose("model=lkf", "loss=mixture").model) - set(compose("model=small").model)
    assert "num_components" in ours
    assert {key for key in different if key.startswith("model.")} == {
        f"model.{key}" for key in ours | {"name", "type"}
    }
    assert {key.split(".")[0] for key in different} == {
        "model",
        "loss",
        "run_dir",
        "checkpointing",
        "callbacks",
        "logger",
        "loader",  # on a CPU micro-batches are chosen to fit, and accumulated to the same batch
        "trainer",
    }


def test_resolvers_are_pure_and_evaluate_nothing(compose: Compose) -> None:
    config = compose()
    for text in ("${eval:'1+1'}", "${eval:\"__import__('os').getcwd()\"}"):
        config.run_dir = text
        with pytest.raises((UnsupportedInterpolationType, InterpolationResolutionError)):
            str(config.run_dir)
    assert RESOLVERS["mul"](2, 3, 4) == 24
    assert RESOLVERS["div_up"](7, 2) == 4 and RESOLVERS["div_up"](8, 2) == 4
    assert RESOLVERS["cpu_count"](1) == 1
    names = ("my.txt", "a/b c.jsonl.gz", "folder", "corpus/**/*.txt")
    assert [RESOLVERS["file_stem"](name) for name in names] == ["my", "b_c", "folder", "_"]


def test_batch_sizes_follow_the_devices(compose: Compose) -> None:
    config = compose("trainer.devices=4", "loader.global_batch_size=512", "loader.batch_size=32")
    assert config.loader.eval_batch_size == 128
    assert config.trainer.accumulate_grad_batches == 4


def test_run_folder_names_the_run(compose: Compose) -> None:
    config = compose("model=lkf-tiny", "model.num_components=4", "loss=mixture", "seed=3")
    assert config.run_dir == "./outputs/agreetext/lkf-tiny-M4-mixture-seed3"
