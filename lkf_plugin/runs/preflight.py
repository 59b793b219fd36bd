"""What would stop a run late is looked at before it begins: folders, checkpoints, judge, disk."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from lkf_plugin.checkpoint_file import local_file
from lkf_plugin.errors import UserError
from lkf_plugin.failures import path_sentence
from lkf_plugin.methods.method import NONE, given_name
from lkf_plugin.train.checkpoint import BEST, LAST

# What a run writes into its folder, and whether that is a folder.
TRAINING_FILES = {
    "config.yaml": False,
    "run.json": False,
    "metrics.csv": False,
    ".lock": False,
}
EVALUATION_FILES = {
    "ppl_eval": {"ppl_eval.json": False, "likelihoods": True, "records": True},
    "sample_eval": {
        "samples.jsonl": False,
        "sample_eval.json": False,
        "samples": True,
        "records": True,
    },
}


def check_before_work(config: DictConfig) -> None:
    """Looks at every path that the mode reads at its start or writes at its end; writes nothing.

    Raises:
        UserError: names the setting, the path and what to do.
    """
    run_dir = Path(config.run_dir)
    require_writable(run_dir, "run_dir")
    if config.mode != "train":
        require_places(run_dir, EVALUATION_FILES.get(config.mode, {}), "run_dir")
        return
    files = TRAINING_FILES | ({"samples": True} if config.eval.generate_samples else {})
    require_places(run_dir, files, "run_dir")
    save_dir = Path(config.checkpointing.save_dir)
    require_writable(save_dir, "checkpointing.save_dir")
    require_places(save_dir, {"checkpoints": True}, "checkpointing.save_dir")
    files = dict.fromkeys((LAST, BEST), False)
    require_places(save_dir / "checkpoints", files, "checkpointing.save_dir")
    _check_start(config)


def require_writable(folder: Path, key: str) -> None:
    """Refuses a folder that is not there and cannot be made, or in which no file can be made.

    Raises:
        UserError: names the folder that is in question, which may be one above.
    """
    try:
        place = _nearest(folder)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EEXIST) or not Path(error.filename or "").name:
            words = path_sentence(OSError(error.errno, error.strerror, str(folder)))
        else:
            words = path_sentence(OSError(error.errno, error.strerror, str(_parent(error))))
        if words is None:
            raise
        raise UserError(f"{key}={folder} cannot be written: {words}.") from error


def _parent(error: OSError) -> Path:
    """The folder in which a scratch file failed; another path as it is."""
    path = Path(error.filename)
    return path.parent if path.name.startswith("tmp") else path


def _nearest(folder: Path) -> Path:
    """The folder itself or the nearest one above it that is there.

    Raises:
        OSError: something that is no folder is in the way, a name is too long, ...
    """
    for place in (folder, *folder.parents):
        try:
            mode = os.stat(place).st_mode
        except FileNotFoundError:
            if place.is_symlink():  # it leads nowhere, and mkdir does not follow it
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place)) from None
            continue
        if not os.path.isdir(place):
            raise NotADirectoryError(errno.ENOTDIR, f"{mode:o}", str(place))
        return place
    return Path(folder.anchor or ".")


def require_places(folder: Path, places: dict[str, bool], key: str) -> None:
    """Refuses files where folders will be, folders where files will be, and what is read-only.

    Args:
        folder: of the run.
        places: names in it, and whether each is a folder.
        key: the setting that names the folder.

    Raises:
        UserError: names the first one that is wrong.
    """
    for name, is_folder in places.items():
        path = folder / name
        try:
            os.lstat(path)
        except OSError:
            continue
        if path.is_dir() is not is_folder:
            kind, needed = ("file", "folder") if is_folder else ("folder", "file")
            raise UserError(
                f"{path} is a {kind} where {key} needs a {needed}: move it, or name another {key}."
            )
        if is_folder:
            require_writable(path, key)
        elif not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UserError(
                f"{path} may not be written: change its permissions, or name another {key}."
            )


def _check_start(config: DictConfig) -> None:
    """``init.from_checkpoint`` is there, and the model is one that starts from it."""
    source = config.init.from_checkpoint
    if not source:
        return
    path = local_file(source, "init.from_checkpoint")
    if path.is_dir():
        if config.host == "mdlm":
            raise UserError(
                f"init.from_checkpoint={source} is a folder: host=mdlm reads checkpoints, bring "
                "it in with scripts/import_checkpoint.py."
            )
        if not (path / "config.json").is_file():
            raise UserError(
                f"init.from_checkpoint={source} is a folder without config.json: name a checkpoint "
                "(of a run: RUN/checkpoints/best.ckpt) or a model folder from the hub."
            )
    elif not path.is_file():
        raise UserError(f"There is no checkpoint at init.from_checkpoint={source}: check the path.")
    if config.model.type != "lkf" and given_name(config) == NONE:
        raise UserError(
            "init.from_checkpoint starts a mixture or a baseline: take model=lkf with "
            "loss=mixture, or set it to null."
        )


# --- judge -------------------------------------------------------------------------------------


def judge_of_training(config: DictConfig, device: torch.device | str = "cpu") -> Any:
    """The judge that hears the samples of each validation, loaded; None if there is none.

    Raises:
        UserError: it cannot be had.
    """
    if not (config.eval.generate_samples and config.eval.compute_generative_perplexity):
        return None
    from lkf_plugin.judge.judge import Judge

    judge = Judge(config.eval.gen_ppl_eval_model_name_or_path, device=device)
    _require_context(judge, config)
    return judge


def _require_context(judge: Any, config: DictConfig) -> None:
    """A judge that would refuse the samples for their length says so before they are drawn."""
    context = getattr(judge.model.config, "max_position_embeddings", None)
    if context is not None and config.model.length > context:
        raise UserError(
            f"the judge {judge.label} takes at most {context} tokens, fewer than model.length="
            f"{config.model.length}: name another in eval.gen_ppl_eval_model_name_or_path."
        )


# --- disk --------------------------------------------------------------------------------------


def check_disk(config: DictConfig, module: nn.Module) -> None:
    """Compares what the checkpoints will take with what is free.

    Raises:
        UserError: they cannot all be there at once, so a save would fail later.
    """
    folder = Path(config.checkpointing.save_dir) / "checkpoints"
    one = checkpoint_bytes(module, config)
    saves = -(-config.trainer.max_steps // config.checkpointing.every_n_steps)
    # last.ckpt shares its bytes with the newest step-N.ckpt; a save is written beside the old ones
    files = max(1, min(config.checkpointing.keep_last, saves))
    files += int(config.trainer.limit_val_batches != 0)  # best.ckpt
    files += int(saves > 1)
    free = free_bytes(folder)
    if free < files * one:
        raise UserError(
            f"The disk of {folder} has {_size(free)} left for checkpoints, and this run needs "
            f"about {_size(files * one)} ({files} files of {_size(one)} at once): free some space, "
            "lower checkpointing.keep_last, or name another checkpointing.save_dir."
        )


def checkpoint_bytes(module: nn.Module, config: DictConfig) -> int:
    """About how large one checkpoint is: weights, average, and the optimizer's two moments."""
    weights = [(w.numel() * w.element_size(), w.requires_grad) for w in module.parameters()]
    trained = sum(size for size, is_trained in weights if is_trained)
    copies = 2 + int(config.training.ema > 0)
    return sum(size for size, _ in weights) + copies * trained


def free_bytes(folder: Path) -> int:
    """Free space of the folder's disk, what this run's own checkpoints take counted as free."""
    place = next(one for one in (folder, *folder.parents) if one.is_dir())
    own = {
        (stat.st_dev, stat.st_ino): stat.st_size
        for stat in _stats(folder.glob("*.ckpt") if folder.is_dir() else ())
    }
    return shutil.disk_usage(place).free + sum(own.values())


def _stats(paths: Iterable[Path]) -> Iterable[os.stat_result]:
    for path in paths:
        try:
            yield path.stat()
        except FileNotFoundError:  # replaced meanwhile
            continue


def _size(count: int) -> str:
    """A number of bytes for people: ``1.3 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
