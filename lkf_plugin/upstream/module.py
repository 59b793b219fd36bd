"""MDLM's Lightning module with a plugin's backbone inside: which of its names are rebound, to what.

Nothing that computes is overridden here. `OVERRIDDEN` lists all that the subclass replaces; it adds
`sampler_of` and `draw_block`, by which `decode.sample` reaches MDLM's own sampler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from lkf_plugin.backbone import build_backbone
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import HOST_SAMPLER
from lkf_plugin.decode.sample import own_policy
from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import HostDiffusion
from lkf_plugin.methods.lkf import bind
from lkf_plugin.upstream import shims as mdlm_shims
from lkf_plugin.upstream.checkout import Upstream
from lkf_plugin.upstream.shims import no_judge_tokenizer, swapped, with_device_count

OVERRIDDEN = ("__init__", "on_save_checkpoint")
ADDED = ("sampler_of", "draw_block")  # the entry to MDLM's own sampler, see decode.sample


def judges_while_validating(config: DictConfig) -> bool:
    """Whether MDLM's own code computes generative perplexity in this run."""
    judged = config.eval.compute_generative_perplexity and config.eval.generate_samples
    return judged and config.mode in ("train", "ppl_eval")


def refuse_unsupported(config: DictConfig) -> None:
    """Refuse what MDLM cannot do on this machine, or would pass over in silence.

    Raises:
        UserError: says what to set instead.
    """
    on_gpu = config.trainer.accelerator in ("gpu", "cuda")
    if config.backbone == "dimamba" and not (
        on_gpu and mdlm_shims.importable("mamba_ssm") and mdlm_shims.importable("causal_conv1d")
    ):
        raise UserError(mdlm_shims.NEEDS_MAMBA)
    if config.backbone == "hf_dit" and not on_gpu:
        raise UserError("backbone=hf_dit needs a GPU: MDLM moves it there")
    if config.model.type == "lkf" and config.backbone != "dit":
        raise UserError(f"model.type=lkf takes the place of backbone=dit, not {config.backbone}")
    if config.optim.name != "adamw":
        raise UserError(f"optim.name={config.optim.name} is not in MDLM: take host=builtin")
    if config.model.type != "lkf" and config.sampling.prompt is not None:
        raise UserError("sampling.prompt is not in MDLM's sampler: take host=builtin or model=lkf")
    if config.model.type != "lkf" and config.init.from_checkpoint:
        raise UserError("init.from_checkpoint starts a mixture: take model=lkf")
    scheduler = config.lr_scheduler["_target_"]
    if scheduler == "utils.CosineDecayWarmupLRScheduler" and not mdlm_shims.importable("timm"):
        raise UserError(mdlm_shims.NEEDS_TIMM)


def safe_diffusion(upstream: Upstream) -> type[HostDiffusion]:
    """Return MDLM's `Diffusion`, with checkpoints that load under torch's `weights_only=True`.

    The judge's tokenizer is loaded only if this run computes generative perplexity. Checkpoints
    carry no `hyper_parameters`, which in MDLM hold the configuration and the tokenizer as pickled
    objects (the run folder keeps both as plain files), and a counter in them suits Lightning 2.6.
    """
    base = upstream.diffusion.Diffusion
    auto_tokenizer = upstream.diffusion.transformers.AutoTokenizer

    class SafeDiffusion(base):  # type: ignore[misc, valid-type]
        def __init__(self, config: DictConfig, tokenizer: Any) -> None:
            needed = judges_while_validating(config)
            with contextlib.nullcontext() if needed else no_judge_tokenizer(auto_tokenizer):
                super().__init__(config, tokenizer)

        def sampler_of(self, policy: str) -> str:
            return own_policy(policy, HOST_SAMPLER)

        def draw_block(
            self, start_GL: Tensor, settings: Mapping[str, Any], num_steps: int
        ) -> Decoded:
            assert len(start_GL) == self.config.loader.eval_batch_size, "see host.mdlm.load_model"
            x_GL = base._sample(self, num_steps, self.config.sampling.eps)
            component_G = torch.zeros(len(x_GL), dtype=torch.int64, device=x_GL.device)
            return Decoded(x_GL, component_G, None, float(num_steps), float(num_steps))

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            super().on_save_checkpoint(checkpoint)
            checkpoint.pop("hyper_parameters", None)
            fit_loop = self.trainer.fit_loop
            if fit_loop.epoch_loop._should_check_val_fx(fit_loop._data_fetcher):
                # Lightning restarts behind this step's validation and counts the step once more,
                # so that all later rows of the log would be one step off.
                loops = checkpoint["loops"]["fit_loop"]
                loops["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1

    return SafeDiffusion


def module_class(upstream: Upstream, config: DictConfig) -> type[lightning.LightningModule]:
    """Return the class that stands in for `diffusion.Diffusion` under `config`.

    `model.type: ddit` stays MDLM's own; `model.type: lkf` gets the latent-kernel mixin in front.
    """
    safe = safe_diffusion(upstream)
    chosen: Any = bind(safe) if config.model.type == "lkf" else safe
    return chosen  # type: ignore[no-any-return]


def backbone_factory(
    own_dit: Callable[..., nn.Module], mask_index: int
) -> Callable[..., nn.Module]:
    """Return what stands in for `models.dit.DIT`: a switch on `config.model.type`.

    Args:
        own_dit: MDLM's own class, for `model.type: ddit`.
        mask_index: id of the mask, which MDLM does not hand to its backbone.
    """

    def build(config: DictConfig, vocab_size: int) -> nn.Module:
        if config.model.type != "lkf":
            return own_dit(config, vocab_size=vocab_size)
        return build_backbone(config.model, vocab_size, mask_index)

    return build


@contextlib.contextmanager
def plugged_in(
    upstream: Upstream, config: DictConfig, mask_index: int
) -> Iterator[type[lightning.LightningModule]]:
    """Rebind MDLM's three seams inside the `with` block; yield the module class in use.

    MDLM looks all three up by attribute when it calls them, so this reaches its training,
    validation and `load_from_checkpoint` alike.
    """
    chosen = module_class(upstream, config)
    dit, loaders = upstream.models.dit, upstream.dataloader
    with (
        swapped(dit, "DIT", backbone_factory(dit.DIT, mask_index)),
        swapped(upstream.diffusion, "Diffusion", chosen),
        swapped(loaders, "get_dataloaders", with_device_count(loaders.get_dataloaders)),
    ):
        yield chosen
