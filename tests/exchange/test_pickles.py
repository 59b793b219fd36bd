"""What the reader of other trainers' pickles finds, and what it never finds."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from lkf_plugin.exchange.pickles import ALLOWED, read_pickled


def touch(folder: Path) -> bytes:
    """The argument of a call that leaves a file behind."""
    return str(folder / "touched").encode()


def call(module: str, name: str, argument: bytes) -> bytes:
    """A protocol-4 pickle that calls ``module.name(argument)``; the name may hold dots."""
    text = b"".join(
        b"\x8c" + bytes([len(part)]) + part for part in (module.encode(), name.encode())
    )
    return b"\x80\x04" + text + b"\x93\x8c" + bytes([len(argument)]) + argument + b"\x85R."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "mkdir"),
        ("posix", "mkdir"),
        ("torch", "os.mkdir"),
        ("torch.serialization", "os.mkdir"),
        ("torch._utils", "sys.modules"),
        ("collections", "_sys.exit"),
        ("typing", "sys.exit"),
        ("omegaconf.omegaconf", "os.mkdir"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch.storage", "_load_from_bytes"),
        ("torch.hub", "load"),
        ("torch.jit", "load"),
        ("omegaconf", "OmegaConf.load"),
    ],
)
@pytest.mark.parametrize("layout", ["old", "zip"])
def test_no_call_is_made(tmp_path: Path, module: str, name: str, layout: str) -> None:
    code = call(module, name, touch(tmp_path))
    path = tmp_path / "evil.ckpt"
    if layout == "old":
        path.write_bytes(code)  # torch's oldest layout begins with a pickle of its own
    else:
        torch.save({"a": 1}, path)
        path.write_bytes(_with_pickle(path, code, tmp_path))
    try:
        found: Any = read_pickled(path, trust_pickle=True)
    except Exception:
        found = None
    assert not (tmp_path / "touched").exists()
    assert found is None or type(found).__mro__[1].__name__ == "_Empty"


def test_the_pickle_of_these_tests_does_call(tmp_path: Path) -> None:
    pickle.loads(call("os", "mkdir", touch(tmp_path)))
    assert (tmp_path / "touched").exists()


def _with_pickle(path: Path, code: bytes, folder: Path) -> bytes:
    """A checkpoint's archive with another ``data.pkl``."""
    import zipfile

    target = folder / "other.zip"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, code if name.endswith("data.pkl") else old.read(name))
    return target.read_bytes()


def test_the_list_is_exact() -> None:
    assert all("." not in name for _, name in ALLOWED)
    for module, name in ALLOWED - {("__builtin__", n) for _, n in ALLOWED}:
        found = getattr(__import__(module, fromlist=[name]), name, None)
        assert found is not None, (module, name)
    assert not {name for _, name in ALLOWED} & {"eval", "exec", "getattr", "open", "__import__"}


@pytest.mark.parametrize("old_layout", [False, True])
def test_weights_and_configurations_come_through(tmp_path: Path, old_layout: bool) -> None:
    content = {
        "weights": collections.OrderedDict(
            a=torch.arange(6.0).view(2, 3).T, b=torch.ones(2).half()
        ),
        "parameter": torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
        "counts": collections.defaultdict(int, a=1),
        "config": OmegaConf.create({"a": [1, 2.5, "x", None, True], "b": {"c": "${a}"}}),
        "size": torch.Size([1, 2]),
        "set": {1, 2},
        "dtype": torch.float32,
        "device": torch.device("cpu"),
    }
    path = tmp_path / "a.ckpt"
    torch.save(content, path, _use_new_zipfile_serialization=not old_layout)
    found = read_pickled(path, trust_pickle=True)
    assert torch.equal(found["weights"]["a"], content["weights"]["a"])
    assert torch.equal(found["weights"]["b"], content["weights"]["b"])
    assert torch.equal(found["parameter"], content["parameter"])
    assert found["config"] == content["config"] and found["size"] == content["size"]
    assert found["counts"] == {"a": 1} and found["set"] == {1, 2}
    assert found["dtype"] is torch.float32 and found["device"] == content["device"]
