"""Reading other people's checkpoints, which are pickle files, and writing plain ones."""

from __future__ import annotations

import collections.abc
import io
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically


def read_pickled(source: Path, trust_pickle: bool) -> dict[str, Any]:
    """Read a checkpoint with pickled objects, on the CPU.

    Objects of classes other than tensors, OmegaConf's and Python's own containers come out empty
    (see `ALLOWED`): neither the trainer's modules nor the transformers version of that time are
    needed. The list keeps a file from calling what it likes; it is no proof against every file that
    was made to do harm, hence the question of trust.

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
    # torch reads its oldest layout by `load`, which in pickle's own module would find any class
    own = {"Unpickler": _TolerantUnpickler, "load": _load, "loads": _loads}
    vars(reader).update(vars(pickle), **own)
    try:
        return torch.load(source, map_location="cpu", weights_only=False, pickle_module=reader)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        reason = " ".join(str(error).split("\n")[0].split())[:200] or type(error).__name__
        raise UserError(f"{source} is damaged or no checkpoint ({reason})") from error


def _load(file: Any, **options: Any) -> Any:
    return _TolerantUnpickler(file, **options).load()


def _loads(data: bytes, **options: Any) -> Any:
    return _load(io.BytesIO(data), **options)


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


_BUILTINS: tuple[str, ...] = (
    "bool",
    "bytearray",
    "bytes",
    "complex",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
)
_BUILTINS += ("object", "set", "slice", "str", "tuple")
_STORAGES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")
_DTYPES: tuple[str, ...] = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
)
_DTYPES += ("float64",)
_NODES: tuple[str, ...] = (
    "AnyNode",
    "BooleanNode",
    "BytesNode",
    "EnumNode",
    "FloatNode",
    "IntegerNode",
)
_NODES += ("InterpolationResultNode", "PathNode", "StringNode")
# Everything that weights and a configuration consist of, by module and name: nothing else is found,
# and no name with a dot, which pickle would follow from one object into another.
ALLOWED = frozenset(
    [
        *(("builtins", name) for name in _BUILTINS),
        *(("__builtin__", name) for name in _BUILTINS),
        *(("torch", f"{name}Storage") for name in _STORAGES),
        *(("torch", name) for name in (*_DTYPES, "Size", "Tensor", "device")),
        *(("torch._utils", f"_rebuild_{name}") for name in ("tensor", "tensor_v2", "parameter")),
        ("torch.nn.parameter", "Parameter"),
        ("omegaconf.dictconfig", "DictConfig"),
        ("omegaconf.listconfig", "ListConfig"),
        ("omegaconf.base", "Metadata"),
        ("omegaconf.base", "ContainerMetadata"),
        ("omegaconf.base", "SCMode"),
        *(("omegaconf.nodes", name) for name in _NODES),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("typing", "Any"),
        ("copyreg", "_reconstructor"),
        ("_codecs", "encode"),
    ]
)


class _TolerantUnpickler(pickle.Unpickler):
    """Finds what is `ALLOWED`; all other objects are `_Empty`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED:
            return super().find_class(module, name)
        return type(name, (_Empty,), {})


def write_plain(converted: dict[str, Any], target: Path) -> None:
    """Write a checkpoint whole, and only if torch's safe loading takes it."""

    def save(scratch: Path) -> None:
        torch.save(_plain(converted), scratch)
        torch.load(scratch, map_location="cpu", weights_only=True, mmap=True)

    write_atomically(target, save)


def _plain(value: Any) -> Any:
    """`value` with mappings and sequences as plain dicts and lists; other objects become None."""
    if isinstance(value, collections.abc.Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, Tensor | str | int | float | bool | None) else None
