"""Reading a checkpoint: a local file, tensors and plain values only, whole."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.errors import UserError

TRAINING_STATE = ("global_step", "loops", "optimizer_states", "lr_schedulers")


def local_file(path: str | Path, key: str = "a checkpoint") -> Path:
    """The path, if it is one of this machine's.

    Raises:
        UserError: it is an address; what comes from elsewhere is downloaded and looked at first.
    """
    if "://" in str(path):
        raise UserError(
            f"{key}={path} is an address, and checkpoints are local files: download it first."
        )
    return Path(path)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A training checkpoint on the CPU, without unpickling objects.

    Raises:
        UserError: not there, truncated, holding pickled objects, or without weights.
    """
    if not local_file(path).is_file():
        raise UserError(f"There is no checkpoint at {path}: check the path.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds pickled objects or is damaged: bring a checkpoint of another "
            "trainer in with scripts/import_checkpoint.py, or take an older checkpoint."
        ) from error
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: it lacks the permission.") from error
    except MemoryError:
        raise
    except Exception as error:  # torch raises anything from EOFError to struct.error
        reason = " ".join(str(error).split("\n")[0].split())[:200] or type(error).__name__
        raise UserError(
            f"{path} is truncated or is no checkpoint: take an older one ({reason})."
        ) from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise UserError(f"{path} is no training checkpoint: it has no state_dict.")
    _check_parts(checkpoint, path)
    return checkpoint


def require_training_state(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Refuses a checkpoint that training cannot go on from.

    Raises:
        UserError: it holds weights alone.
    """
    if not set(TRAINING_STATE) <= checkpoint.keys():
        raise UserError(
            f"{path} holds weights but no training state: start from it by init.from_checkpoint, "
            "or give another run_dir."
        )
    step = checkpoint["global_step"]
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise UserError(f"{path} is damaged (global_step={step}): take an older checkpoint.")


def _check_parts(checkpoint: dict[str, Any], path: str | Path) -> None:
    state = checkpoint["state_dict"]
    whole = isinstance(state, dict) and state
    if not whole or not all(isinstance(n, str) for n in state):
        raise UserError(f"{path} is damaged: its state_dict holds no weights.")
    other = next((n for n, tensor in state.items() if not isinstance(tensor, Tensor)), None)
    if other is not None:
        raise UserError(f"{path} is damaged: {other} is no tensor.")
    average = checkpoint.get("ema")
    if average is None:
        return
    shadows = average.get("shadow_params") if isinstance(average, dict) else None
    if (
        not isinstance(shadows, list)
        or not all(isinstance(shadow, Tensor) for shadow in shadows)
        or not {"decay", "num_updates"} <= average.keys()
    ):
        raise UserError(f"{path} is damaged: its weight average is not whole.")
