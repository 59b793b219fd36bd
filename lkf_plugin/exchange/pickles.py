"""Reading other people's checkpoints, which are pickle files, and writing plain ones."""

from __future__ import annotations

import collections.abc
import os
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.errors import UserError


def read_pickled(source: Path, trust_pickle: bool) -> dict[str, Any]:
    """Read a checkpoint with pickled objects, on the CPU.

    Objects of classes other than torch's, OmegaConf's and Python's own containers come out empty:
    neither the trainer's modules nor the transformers version of that time are needed. This is no
    protection against a file that was made to do harm.

    Raises:
        UserError: no such file, no permission to unpickle, or a damaged file.
    """
    if not trust_pickle:
        raise UserError(
            "Checkpoints of other trainers are pickle files, which can run any code when they are "
            "read: add --trust-pickle if you trust where this one comes from"
        )
    if not source.is_file():
        raise UserError(f"there is no checkpoint {source}")
    reader = ModuleType("lkf_tolerant_pickle")
    vars(reader).update(vars(pickle), Unpickler=_TolerantUnpickler)
    try:
        return torch.load(source, map_location="cpu", weights_only=False, pickle_module=reader)
    except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError) as error:
        raise UserError(f"{source} is damaged or no checkpoint ({error})") from error


class _Empty:
    """Takes the place of an object that is not needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> _Empty:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass


class _TolerantUnpickler(pickle.Unpickler):
    """Finds the classes that weights and a configuration consist of; all others are `_Empty`."""

    packages = ("torch", "omegaconf", "collections", "typing", "copyreg", "_codecs")
    builtins = {t.__name__ for t in (bool, bytearray, bytes, complex, dict, float, frozenset)}
    builtins |= {t.__name__ for t in (int, list, object, set, slice, str, tuple)}

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in self.packages or (
            module == "builtins" and name in self.builtins
        ):
            return super().find_class(module, name)
        return type(name, (_Empty,), {})


def write_plain(converted: dict[str, Any], target: Path) -> None:
    """Write a checkpoint whole, and only if torch's safe loading takes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        torch.save(_plain(converted), scratch)
        torch.load(scratch, map_location="cpu", weights_only=True, mmap=True)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """`value` with mappings and sequences as plain dicts and lists; other objects become None."""
    if isinstance(value, collections.abc.Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, Tensor | str | int | float | bool | None) else None
