"""The originals' own code beside ours: found, imported, and gone from ``sys.modules`` again.

Most are folders of top-level modules with common names (``model``, ``models``, ``utils``), as MDLM
is, and two are a package of one name, so each is imported alone and its names are given back at
once; the modules stay usable.

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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.runs.tokenizer import tokenizer_card
from lkf_plugin.upstream import shims
from lkf_plugin.upstream.shims import swapped

EXTERNAL = Path(__file__).parents[2] / "external"
TINY = (  # a network of MDLM's family, in the keys that DUO, SDTT and all their copies share
    "model.hidden_size=16",
    "model.cond_dim=8",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.dropout=0.0",
    "training.ema=0.9",
)


class Checkout(NamedTuple):
    """A repository whose code ours is compared with.

    Attributes:
        entry: a file that no other checkout has.
        root: the folder from which its modules are imported.
        commit: that was compared.
        digest: of its Python files.
    """

    entry: str
    root: str
    commit: str
    digest: str


CHECKOUTS = {
    "sedd": Checkout(
        "graph_lib.py",
        "",
        "0605786da5ccb5747545e26d66fdf477187598b6",
        "4b61042ee4fc72aa7ef371734e2d0c982bc8dfba83cf780f7e7a29d39a6d6b97",
    ),
    "duo": Checkout(
        "trainer_base.py",
        "",
        "7c9b498f5b717de064d6fad7e2509c866e6cb620",
        "32c5b1b1c5b79b0225ff5b53a5174f3fc340dd083f4a5e6f84ec5e8d525c5542",
    ),
    "sdtt": Checkout(
        "src/sdtt/push_to_hub.py",
        "src",
        "9172b86500126d4ca93bd5e204395c5062fdc7fd",
        "dea5ee8ce83501f046faa76fd7fe5f8a887e7016aa3d24758d188a72d1ca095c",
    ),
    "di4c": Checkout(
        "sdtt/src/sdtt/main.py",
        "sdtt/src",
        "ac61ff9fe8e85120f9e1d2a8c5a332f8b8353dd3",
        "fd4a33601d50f432fe9f929727d66e81c80b654a0fdad7f431fd809205ef0d4b",
    ),
    "redi": Checkout(
        "text/trainer_base.py",
        "text",
        "c8fb9b897f29bef17a9da0a48a417cf990073cae",
        "e2c3f3e8fe69cdd33330f9b5ff6e324088af137c4409dc9b3369a5f1bc016a2f",
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
    """The folder of the modules, where $SEDD_HOME, $SDTT_HOME, ... names a checkout or one lies in
    ``external/<name>``; else None.

    Raises:
        UserError: the variable is set, but to another folder.
    """
    variable, checkout = variable_of(name), CHECKOUTS[name]
    home = os.environ.get(variable)
    folder = Path(home).expanduser().resolve() if home else EXTERNAL / name
    if (folder / checkout.entry).is_file():
        return folder / checkout.root
    if home:
        raise UserError(f"{variable}={home} holds no {checkout.entry}: point it to a checkout")
    return None


def variable_of(name: str) -> str:
    """The environment variable that names the checkout."""
    return f"{name.upper()}_HOME"


def reason_to_skip(name: str) -> str:
    """What to do for the tests of ``name`` to run."""
    return f"no checkout of {name}: set {variable_of(name)} or clone it into external/{name}"


def require_compared(name: str, home: Path) -> None:
    """The checkout is the commit that was compared; git's own files are not needed to tell.

    Raises:
        AssertionError: it is another.
    """
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    assert digest.hexdigest() == CHECKOUTS[name].digest, f"check out {CHECKOUTS[name].commit}"


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
            modules = {name: importlib.import_module(name) for name in names}
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(before)
        sys.path[:] = path
    return SimpleNamespace(**{name.replace(".", "_"): module for name, module in modules.items()})


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


FLASH: StandIns = {
    "flash_attn": {},
    "flash_attn.flash_attn_interface": {"flash_attn_varlen_qkvpacked_func": varlen_attention},
    "flash_attn.layers": {},
    "flash_attn.layers.rotary": {
        "apply_rotary_emb_torch": rotary_embedding,
        "apply_rotary_emb_qkv_": shims.apply_rotary_emb_qkv_,
    },
}
UNUSED: StandIns = {  # imported, but not for what is compared here
    "loguru": {"logger": SimpleNamespace(info=print, warning=print)},
    "nltk": {},
    "nltk.translate": {},
    "nltk.translate.bleu_score": {"SmoothingFunction": None},
    "scipy": {},
    "scipy.integrate": {"quad": None},
    "scipy.optimize": {"curve_fit": None},
    "scipy.stats": {"norm": None},
    "timm": {},
    "timm.scheduler": {"CosineLRScheduler": type("CosineLRScheduler", (), {})},
    "torchdata": {},
    "torchdata.stateful_dataloader": {"StatefulDataLoader": None},
}


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


def imported(checkpoint: Path, key: str = "init.from_checkpoint") -> str:
    """The override that gives our module a checkpoint of theirs, taken over by our own importer."""
    card = tokenizer_card(agreetext_tokenizer(), "agreetext")
    target = checkpoint.with_name(f"imported-{checkpoint.name}")
    import_checkpoint(checkpoint, target, True, Wanted(None, 87, 88, tokenizer=card))
    return f"{key}={target}"


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
