"""SEDD's and DUO's own code beside ours: found, imported, and gone from ``sys.modules`` again.

Both are folders of top-level modules with common names (``model``, ``models``, ``utils``), as MDLM
is, so each is imported alone and its names are given back at once; the modules stay usable.

Shape legend: T tokens of all rows, L positions, H heads, C channels of a head, R = C / 2.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import import_checkpoint
from lkf_plugin.upstream.shims import swapped

EXTERNAL = Path(__file__).parents[2] / "external"
ENTRY = {"sedd": "graph_lib.py", "duo": "trainer_base.py"}  # a file that no other checkout has
COMPARED = {  # commit, and the digest of its sources
    "sedd": (
        "0605786da5ccb5747545e26d66fdf477187598b6",
        "4b61042ee4fc72aa7ef371734e2d0c982bc8dfba83cf780f7e7a29d39a6d6b97",
    ),
    "duo": (
        "7c9b498f5b717de064d6fad7e2509c866e6cb620",
        "32c5b1b1c5b79b0225ff5b53a5174f3fc340dd083f4a5e6f84ec5e8d525c5542",
    ),
}
JIT_FLAGS = (
    "_jit_set_profiling_mode",
    "_jit_set_profiling_executor",
    "_jit_override_can_fuse_on_cpu",
    "_jit_override_can_fuse_on_gpu",
)
StandIns = Mapping[str, Mapping[str, Any]]


def find_checkout(name: str) -> Path | None:
    """The folder that $SEDD_HOME or $DUO_HOME names, else ``external/<name>``, else None.

    Raises:
        UserError: the variable is set, but to another folder.
    """
    variable = variable_of(name)
    home = os.environ.get(variable)
    folder = Path(home).expanduser().resolve() if home else EXTERNAL / name
    if (folder / ENTRY[name]).is_file():
        return folder
    if home:
        raise UserError(f"{variable}={home} holds no {ENTRY[name]}: point it to a checkout")
    return None


def variable_of(name: str) -> str:
    """The environment variable that names the checkout."""
    return f"{name.upper()}_HOME"


def reason_to_skip(name: str) -> str:
    """What to do for the tests of ``name`` to run."""
    return f"no checkout of {name}: set {variable_of(name)} or clone it into external/{name}"


def source_digest(home: Path) -> str:
    """sha256 over the checkout's Python files, which needs no git metadata."""
    digest = hashlib.sha256()
    for path in sorted((*home.glob("*.py"), *home.glob("*/*.py"))):
        digest.update(path.relative_to(home).as_posix().encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def load(home: Path, names: tuple[str, ...], stand_ins: StandIns) -> SimpleNamespace:
    """Import modules of the checkout.

    Args:
        home: the checkout.
        names: its modules, by the names they import each other with.
        stand_ins: members of modules that are put in place of others during the import.

    Returns:
        The modules; a dot in a name becomes an underscore.
    """
    files = {path.stem for path in home.glob("*.py")}
    packages = {path.parent.name for path in home.glob("*/__init__.py")}
    tops = files | packages | {name.partition(".")[0] for name in stand_ins}
    before = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in tops}
    path = list(sys.path)
    for name in before:
        del sys.modules[name]
    try:
        sys.path.insert(0, str(home))
        importlib.invalidate_caches()
        for name, members in stand_ins.items():
            _stand_in(name, members)
        with contextlib.ExitStack() as stack:
            stack.enter_context(swapped(sys, "dont_write_bytecode", True))
            for flag in JIT_FLAGS:  # set for the whole process when the networks are imported
                stack.enter_context(swapped(torch._C, flag, lambda on: None))
            found = {name: importlib.import_module(name) for name in names}
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(before)
        sys.path[:] = path
    return SimpleNamespace(**{name.replace(".", "_"): module for name, module in found.items()})


def _stand_in(name: str, members: Mapping[str, Any]) -> None:
    module = ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)


def where_missing(stand_ins: StandIns) -> StandIns:
    """Those whose package is not installed."""
    tops = {name.partition(".")[0] for name in stand_ins}
    gone = {top for top in tops if importlib.util.find_spec(top) is None}
    return {n: m for n, m in stand_ins.items() if n.partition(".")[0] in gone}


def varlen_attention(
    qkv_T3HC: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float, causal: bool
) -> Tensor:
    """flash-attn's packed attention, [T, H, C], written out."""
    assert dropout_p == 0.0 and not causal
    rows = []
    for start, stop in itertools.pairwise(cu_seqlens.tolist()):
        q_LHC, k_LHC, v_LHC = qkv_T3HC[start:stop].unbind(dim=1)
        scores = torch.einsum("qhc,khc->hqk", q_LHC, k_LHC) / q_LHC.shape[-1] ** 0.5
        rows.append(torch.einsum("hqk,khc->qhc", scores.softmax(dim=-1), v_LHC))
    return torch.cat(rows)


def rotary_embedding(x: Tensor, cos_LR: Tensor, sin_LR: Tensor) -> Tensor:
    """flash-attn's rotary embedding of [B, L, H, C]: the halves are one complex number turned."""
    turned = torch.complex(*x.chunk(2, dim=-1)) * torch.complex(cos_LR, sin_LR)[:, None]
    return torch.cat((turned.real, turned.imag), dim=-1)


@contextlib.contextmanager
def working_in(dtype: torch.dtype) -> Iterator[None]:
    """Let upstream, which pins float32 by ``.float()``, compute in ``dtype`` throughout."""
    if dtype == torch.float32:
        yield
        return
    torch.set_default_dtype(dtype)
    try:
        with swapped(torch.Tensor, "float", torch.Tensor.double):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def shake(network: nn.Module, seed: int) -> None:
    """Move every weight: heads and modulations start at zero, which would hide much."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)


def imported(checkpoint: Path) -> str:
    """The override that starts our module from a checkpoint of theirs, by our own importer."""
    target = checkpoint.with_name("imported.ckpt")
    import_checkpoint(checkpoint, target, trust_pickle=True)
    return f"init.from_checkpoint={target}"


def recorded(draw: Callable[[Tensor], Tensor], seen: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """``draw`` that keeps a copy of the weights it is given."""

    def record(weights: Tensor) -> Tensor:
        seen.append(weights.clone())
        return draw(weights)

    return record


def assert_same_gradients(
    ours: nn.Module, theirs: nn.Module, scale: float, rtol: float, atol: float
) -> None:
    """Every weight's gradient, by name; ours times ``scale``. ``atol`` is relative to the largest.

    A gradient that is zero everywhere would prove nothing, so none may be.
    """
    wanted = {name: weight.grad for name, weight in theirs.named_parameters()}
    assert wanted.keys() == {name for name, _ in ours.named_parameters()}
    for name, weight in ours.named_parameters():
        largest = wanted[name].abs().max().item()
        assert largest > 0, name
        torch.testing.assert_close(
            weight.grad * scale,
            wanted[name],
            rtol=rtol,
            atol=atol * largest,
            msg=lambda text, name=name: f"{name}: {text}",
        )
