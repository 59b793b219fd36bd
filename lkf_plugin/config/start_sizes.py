"""Sizes of the network that training starts from, so that a recipe need not be told them.

They are read from the ``config.json`` of a hub folder (MDLM's, SEDD's, or an export of ours), or
from the card of a checkpoint. What is not there gives the default; training then says so.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from lkf_plugin.errors import UserError

# Our key of group ``model`` -> what public configurations call it.
NAMES = {
    "hidden_size": ("hidden_size", "hidden_dim"),
    "cond_dim": ("cond_dim",),
    "n_blocks": ("n_blocks",),
    "n_heads": ("n_heads",),
    "length": ("length", "model_length"),
    "dropout": ("dropout",),
    "time_conditioning": ("time_conditioning",),
}
CARD = "lkf_card"


def start_size(key: str, default: Any, source: str | None) -> Any:
    """A size of the network in a folder or checkpoint; ``default`` where none is named or there.

    Raises:
        UserError: the file is there and does not tell, or is damaged.
    """
    path = Path(str(source)).expanduser() if source else None
    if path is None or not path.exists():
        return default
    told = _of_folder(path) if path.is_dir() else _of_checkpoint(path, path.stat().st_mtime_ns)
    values = [told[name] for name in NAMES[key] if name in told]
    wanted = bool if key == "time_conditioning" else float if key == "dropout" else int
    if not values:
        if key in ("dropout", "time_conditioning"):  # of SEDD's, which has one law
            return default
        place = key if key == "time_conditioning" else f"model.{key}"
        raise UserError(f"{path} does not tell its {key}: give {place}=...")
    value = float(values[0]) if wanted is float and isinstance(values[0], int) else values[0]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise UserError(f"{path} is damaged: it has {key}={values[0]!r}.")
    return value


def _of_folder(folder: Path) -> Mapping[str, Any]:
    file = folder / "config.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"init.from_checkpoint={folder} is a folder whose config.json cannot be read: name a "
            "checkpoint (of a run: RUN/checkpoints/best.ckpt) or a model folder from the hub."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged ({error}).") from error
    if not isinstance(told, dict):
        raise UserError(f"{file} is damaged: it holds no object.")
    nested = told.get("model")
    return {**(nested if isinstance(nested, dict) else {}), **told}


@functools.lru_cache(maxsize=2)
def _of_checkpoint(path: Path, changed: int) -> Mapping[str, Any]:
    """Of its card, and of the configuration that an import leaves beside it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # training reads it again and says what is wrong
        return {}
    card = content.get(CARD) if isinstance(content, dict) else None
    told: dict[str, Any] = {}
    if isinstance(card, dict):
        told |= dict(card.get("process") or {}) | dict(card.get("network") or {})
    for file in (path.with_suffix(".yaml"), path.parent.parent / "config.yaml"):
        if file.is_file():
            settings = yaml.safe_load(file.read_text(encoding="utf-8"))
            model = settings.get("model") if isinstance(settings, dict) else None
            known = model if isinstance(model, dict) else {}
            told |= {key: known[key] for key in ("length", "dropout") if key in known}
            break
    return told
