"""Small stand-ins that let unmodified MDLM run where a package or a GPU is missing.

Each one is installed only where the real thing is missing, and named in one log line. What MDLM
computes is unchanged: only flash-attn's stand-in does arithmetic, the same rotary embedding and
the same softmax attention.

Shapes: T tokens of all rows, B batch, L positions, H heads, C channels of a head.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.backbone.attention import attend, rotate
from lkf_plugin.errors import UserError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set attribute `name` of `owner` to `value` inside the `with` block, then put it back."""
    before = inspect.getattr_static(owner, name)  # a classmethod stays one
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def install(on_gpu: bool) -> list[str]:
    """Install the stand-ins that MDLM's imports need on this machine.

    Args:
        on_gpu: whether the run computes on a GPU; flash-attn's kernels serve no other device.

    Returns:
        Names of the packages that are stood in for, in order.
    """
    installed = []
    if not (on_gpu and importable("flash_attn")):
        _add_flash_attn()
        installed.append("flash_attn")
    for package, add in (
        ("timm", _add_timm),
        ("causal_conv1d", _add_causal_conv1d),
        ("mamba_ssm", _add_mamba_ssm),
        ("requests", _add_requests),
    ):
        if is_stand_in(package) or not importable(package):
            add()
            installed.append(package)
    log.info("MDLM's packages with a stand-in on this machine: %s", ", ".join(installed) or "none")
    return installed


def importable(package: str) -> bool:
    """Tell whether the real package can be imported; a broken build counts as missing."""
    if is_stand_in(package):
        return False
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        return False
    except (ImportError, OSError) as error:  # e.g. kernels built for another torch
        log.warning("%s is installed but cannot be imported: %s", package, error)
        return False
    return True


def is_stand_in(package: str) -> bool:
    """Tell whether the loaded module `package` is one of ours."""
    return getattr(sys.modules.get(package), "__lkf_stand_in__", False)


def _add_module(name: str, **members: Any) -> ModuleType:
    """Register a module `name` that holds `members` and hangs below its parent module.

    It carries a real ModuleSpec: `importlib.util.find_spec`, which transformers calls for optional
    packages, raises on a module whose spec is None.
    """
    module = ModuleType(name, "Stand-in for a package that is missing here.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    vars(module)["__lkf_stand_in__"] = True
    vars(module).update(members)
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
    return module


# --- flash-attn: the two functions that MDLM calls -------------------------------------------


def apply_rotary_emb_qkv_(qkv_BL3HC: Tensor, cos_LR: Tensor, sin_LR: Tensor) -> Tensor:
    """Turn queries and keys by their positions' angles (R = C / 2 of them); leave the values.

    Unlike flash-attn's kernel it does not write in place: MDLM takes the returned tensor.
    """
    q, k, v = qkv_BL3HC.unbind(dim=2)
    angles = (cos_LR, sin_LR)
    return torch.stack((rotate(q, angles), rotate(k, angles), v), dim=2)


def flash_attn_varlen_qkvpacked_func(
    qkv_T3HC: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Softmax attention inside each of the B rows that lie one after the other along T.

    Args:
        qkv_T3HC: packed queries, keys and values.
        cu_seqlens: B + 1 row boundaries. All rows are `max_seqlen` long: MDLM passes no others.
        max_seqlen: L.
        dropout_p: dropout of the attention weights; MDLM passes 0.
        causal: whether positions see only those before (backbone=ar).

    Returns:
        Attention output, shape [T, H, C].
    """
    rows = cu_seqlens.numel() - 1
    assert qkv_T3HC.shape[0] == rows * max_seqlen, "rows of unequal length"
    assert dropout_p == 0.0, "no dropout inside attention"
    q, k, v = qkv_T3HC.unflatten(0, (rows, max_seqlen)).unbind(dim=2)
    if causal:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out_BLHC = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    else:
        out_BLHC = attend(q, k, v)
    return out_BLHC.flatten(0, 1)


def _add_flash_attn() -> None:
    _add_module("flash_attn")
    _add_module(
        "flash_attn.flash_attn_interface",
        flash_attn_varlen_qkvpacked_func=flash_attn_varlen_qkvpacked_func,
    )
    _add_module("flash_attn.layers")
    _add_module("flash_attn.layers.rotary", apply_rotary_emb_qkv_=apply_rotary_emb_qkv_)


# --- packages whose import must pass, and whose use must not ---------------------------------


def _refuses(sentence: str) -> Callable[..., Any]:
    """Return a function that raises `UserError(sentence)` however it is called."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UserError(sentence)

    return refuse


NEEDS_TIMM = "lr_scheduler=cosine_decay_warmup needs timm: run `pip install timm torchvision`"
NEEDS_MAMBA = (
    "backbone=dimamba needs a GPU with the packages mamba-ssm and causal-conv1d: "
    "install them or take backbone=dit"
)
NEEDS_REQUESTS = "data=lambada is downloaded with requests: run `pip install requests`"


def _add_timm() -> None:
    """timm: MDLM derives its cosine schedule from one class of it."""
    scheduler = type("CosineLRScheduler", (), {"__init__": _refuses(NEEDS_TIMM)})
    _add_module("timm")
    _add_module("timm.scheduler", CosineLRScheduler=scheduler)


def _add_causal_conv1d() -> None:
    refuse = _refuses(NEEDS_MAMBA)
    _add_module("causal_conv1d", causal_conv1d_fn=refuse, causal_conv1d_update=refuse)


def _add_mamba_ssm() -> None:
    """mamba-ssm: MDLM itself does without `ops.triton.layernorm`, so that one stays missing."""
    refuse = _refuses(NEEDS_MAMBA)
    _add_module("mamba_ssm")
    _add_module("mamba_ssm.ops")
    _add_module(
        "mamba_ssm.ops.selective_scan_interface", mamba_inner_fn=refuse, selective_scan_fn=refuse
    )
    _add_module("mamba_ssm.ops.triton")
    _add_module("mamba_ssm.ops.triton.selective_state_update", selective_state_update=refuse)


def _add_requests() -> None:
    _add_module("requests", get=_refuses(NEEDS_REQUESTS))


# --- what holds only while one upstream call runs --------------------------------------------


def with_device_count(get_dataloaders: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap MDLM's `get_dataloaders`, which takes the number of CUDA devices for `trainer.devices`.

    Its check of the batch sizes fails on a CPU, and where the run uses some of the GPUs only.
    """

    def counted(config: Any, *args: Any, **kwargs: Any) -> Any:
        with swapped(torch.cuda, "device_count", lambda: int(config.trainer.devices)):
            return get_dataloaders(config, *args, **kwargs)

    return counted


class NoJudgeTokenizer:
    """Stands where the judge's tokenizer would be, in a run that computes no generative perplexity.

    MDLM loads that tokenizer (of gpt2-large by default) even to train.
    """

    pad_token = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError(
            "this run was started without a judge: set eval.compute_generative_perplexity=true, "
            "eval.generate_samples=true and eval.gen_ppl_eval_model_name_or_path"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()


@contextlib.contextmanager
def no_judge_tokenizer(auto_tokenizer: Any) -> Iterator[None]:
    """Let `auto_tokenizer.from_pretrained` give a `NoJudgeTokenizer` inside the `with` block."""
    with swapped(auto_tokenizer, "from_pretrained", lambda *args, **kwargs: NoJudgeTokenizer()):
        yield
