"""Where the MDLM checkout is, whether it is the pinned one, and how its modules are loaded.

MDLM is a folder of top-level modules with common names (`main`, `utils`, `models`, ...), not a
package. This file is the only one that touches `sys.path` for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from omegaconf import OmegaConf

from lkf_plugin.errors import UserError
from lkf_plugin.upstream.shims import swapped

log = logging.getLogger(__name__)

PINNED_COMMIT = "c112c526d193436838c98d81455ee51f90309470"
# sha256 over the sources below, as they are at the pinned commit (see `source_digest`).
PINNED_DIGEST = "58fae52b1b2822e2c1e865e1a53f5e726ac38ae780ea4a3dda1277ac61345b16"
SOURCES = (
    "dataloader.py",
    "diffusion.py",
    "main.py",
    "noise_schedule.py",
    "utils.py",
    "models/__init__.py",
    "models/autoregressive.py",
    "models/dimamba.py",
    "models/dit.py",
    "models/ema.py",
)
TOP_LEVEL = ("utils", "noise_schedule", "models", "dataloader", "diffusion", "main")
# The line that patches/run_inside_mdlm.patch puts at the top of MDLM's main.py.
INSERTED_LINE = b"import lkf_plugin.inside_mdlm\n"


@dataclass(frozen=True)
class Upstream:
    """MDLM's modules, as imported from one checkout.

    Attributes:
        home: the checkout.
        main: its `main` module (entry functions, looked up by attribute when they are called).
        diffusion: its `diffusion` module (the Lightning module).
        dataloader: its `dataloader` module (datasets, tokenizers, loaders).
        models: its `models` package (`models.dit.DIT` is the backbone seam).
    """

    home: Path
    main: ModuleType
    diffusion: ModuleType
    dataloader: ModuleType
    models: ModuleType


def submodule_folder() -> Path:
    """The folder in which this repository keeps MDLM as a git submodule."""
    return Path(__file__).resolve().parents[2] / "external" / "mdlm"


def find_checkout() -> Path | None:
    """Return the MDLM checkout to use, or None when there is none.

    $MDLM_HOME wins over the submodule.

    Raises:
        UserError: $MDLM_HOME is set, but holds no MDLM.
    """
    home = os.environ.get("MDLM_HOME")
    if home:
        folder = Path(home).expanduser().resolve()
        if not is_checkout(folder):
            raise UserError(f"MDLM_HOME={home} holds no MDLM checkout: point it to one or unset it")
        return folder
    folder = submodule_folder()
    return folder if is_checkout(folder) else None


def require_checkout() -> Path:
    """Return the MDLM checkout.

    Raises:
        UserError: there is none.
    """
    folder = find_checkout()
    if folder is None:
        raise UserError(
            "host=mdlm needs an MDLM checkout: run `git submodule update --init external/mdlm`, "
            "set MDLM_HOME to a checkout, or take host=builtin"
        )
    return folder


def is_checkout(folder: Path) -> bool:
    """Tell whether `folder` looks like MDLM's work tree."""
    return all((folder / name).is_file() for name in ("main.py", "diffusion.py", "models/dit.py"))


def source_digest(home: Path) -> str:
    """Digest of the upstream sources in `home` (hex sha256); our inserted first line is left out.

    A digest works for work trees without git metadata too, and sees local changes.
    """
    digest = hashlib.sha256()
    for name in SOURCES:
        path = home / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(content.replace(b"\r\n", b"\n").removeprefix(INSERTED_LINE))
        digest.update(name.encode())
    return digest.hexdigest()


def warn_unless_pinned(home: Path) -> bool:
    """Warn in one line when the checkout is not the pinned commit; return whether it is."""
    pinned = source_digest(home) == PINNED_DIGEST
    if not pinned:
        log.warning(
            "the MDLM checkout %s differs from commit %s, the one this plugin is tested with",
            home,
            PINNED_COMMIT[:10],
        )
    return pinned


def load_upstream(home: Path) -> Upstream:
    """Import MDLM's modules from `home`; they stay importable until the process ends.

    The shims (`mdlm_shims.install`) must be in place before.

    Raises:
        UserError: a package MDLM needs is missing, or another module has one of its names.
    """
    home = home.resolve()
    # First on the path, and kept there: worker processes that are not forked inherit the path, and
    # `main` must be MDLM's although ours may be in the working directory.
    if sys.path[:1] != [str(home)]:
        sys.path.insert(0, str(home))
    for name in TOP_LEVEL:
        _refuse_foreign(name, home)
    importlib.invalidate_caches()
    with _resolvers_left_alone():
        try:
            modules = {name: importlib.import_module(name) for name in TOP_LEVEL}
        except ModuleNotFoundError as error:
            raise UserError(
                f"host=mdlm needs the package {error.name!r}: install this plugin with its "
                "[mdlm] extra, or take host=builtin"
            ) from error
    for name in TOP_LEVEL:
        _refuse_foreign(name, home)
    return Upstream(
        home=home,
        main=modules["main"],
        diffusion=modules["diffusion"],
        dataloader=modules["dataloader"],
        models=modules["models"],
    )


def _refuse_foreign(name: str, home: Path) -> None:
    """Raise a UserError when a loaded module `name` is not the checkout's."""
    module = sys.modules.get(name)
    if module is None:
        return
    origin = getattr(module, "__file__", None)
    if origin is None or home not in Path(origin).resolve().parents:
        raise UserError(
            f"a module named {name!r} from {origin} hides MDLM's own in {home}: "
            "start the run from another folder, in a process of its own"
        )


@contextlib.contextmanager
def _resolvers_left_alone() -> Iterator[None]:
    """Keep MDLM's `main` from registering its Hydra resolvers (`eval` among them).

    Our configs use resolvers of their own, registered under some of the same names.
    """
    with swapped(OmegaConf, "register_new_resolver", lambda *args, **kwargs: None):
        yield
