"""A tiny module of SDTT's code, or of Di4C's, which is a copy of it with more in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from tests.methods import upstream

V, L, MASK = 88, 32, 87  # theirs appends a mask to the tokenizer's words
SIZES = (
    "model=dit-orig-small",
    *upstream.TINY,
    f"model.length={L}",
    "parameterization.start_from_hf=false",
)
MODULES = ("sdtt.core.distill.multi_round_sdtt", "sdtt.models.loading_utils")


def module_of_theirs(home: Path, folder: Path, *overrides: str) -> Any:
    """A student whose teacher it does not equal: both have had every weight moved."""
    stand_ins = {**upstream.FLASH, **upstream.where_missing(upstream.UNUSED)}
    code = upstream.load(home, MODULES, stand_ins)
    path = folder / "teacher-of-theirs.ckpt"
    words = (*SIZES, f"parameterization.checkpoint_path={path}", *overrides)
    with initialize_config_dir(str(home / "sdtt" / "configs"), version_base="1.3"):
        config = compose("config", list(words))
    torch.manual_seed(0)
    teacher = code.sdtt_models_loading_utils.get_backbone(config, V)
    upstream.shake(teacher, 1)
    state = {f"backbone.{name}": tensor for name, tensor in teacher.state_dict().items()}
    torch.save({"state_dict": state}, path)
    kind = code.sdtt_core_distill_multi_round_sdtt.MultiRoundSDTT
    module = kind(config, SimpleNamespace(vocab_size=V - 1), verbose=False)
    upstream.shake(module.backbone, 2)
    module.ema.update(module.iter_params())
    return module


def rewritten(module: Any, folder: Path) -> tuple[Path, Path]:
    """(student's, teacher's) checkpoints as its trainer writes them."""
    config = {"hyper_parameters": {"config": module.config}, "global_step": 1}
    student = {**config, "state_dict": module.state_dict(), "ema": module.ema.state_dict()}
    network = module.teacher[0]
    state = {
        f"backbone.{name}": tensor
        for name, tensor in network.state_dict().items()
        if getattr(network, "is_di4c", True) or not name.startswith("latent_projection")
    }
    torch.save(student, folder / "student.ckpt")
    torch.save({**config, "state_dict": state}, folder / "teacher.ckpt")
    return folder / "student.ckpt", folder / "teacher.ckpt"
