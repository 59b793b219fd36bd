"""What a result was made with: code, libraries, machine, and digests of files."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

import lkf_plugin
from lkf_plugin.errors import UserError

_LIBRARIES = ("datasets", "lightning", "numpy", "tokenizers", "torch", "transformers")
_CHUNK = 1 << 20


def code_version() -> str:
    """Package version, and in a git checkout the commit: ``0.1.0+g<40 hex>[.dirty]``.

    ``dirty`` tells that tracked files differ from the commit. A checkout counts only if this
    package is tracked in it, so that an environment inside some other repository is not mistaken
    for it.
    """
    version = lkf_plugin.__version__
    package = Path(lkf_plugin.__file__).resolve().parent
    if not _git(package, "ls-files", "__init__.py"):
        return version
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return version
    dirty = ".dirty" if _git(package, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{version}+g{commit}{dirty}"


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that numbers can depend on, and of Python."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    versions["torch"] = torch.__version__
    versions["python"] = platform.python_version()
    return versions


def machine() -> dict[str, str | int | float | bool | None]:
    """Processor, cores, threads that torch uses, and the first GPU's name (or ``None``)."""
    gpus = torch.cuda.device_count()
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(0) if gpus else None,
        "gpus": gpus,
        "system": f"{platform.system()} {platform.machine()}",
    }


def path_digest(path: Path | str) -> str:
    """SHA-256, in hex, of a file, or of a folder's files with their relative names.

    Neither the place nor the times of the files enter.

    Raises:
        UserError: if there is nothing at the path, or the folder holds no file.
    """
    root = Path(path)
    digest = hashlib.sha256()
    if root.is_file():
        _feed(digest, root)
        return digest.hexdigest()
    files = sorted(
        (one for one in root.rglob("*") if one.is_file()),
        key=lambda one: one.relative_to(root).as_posix(),
    )
    if not files:
        raise UserError(f"there is no checkpoint at {path}: give a checkpoint file or folder")
    for one in files:
        name = one.relative_to(root).as_posix().encode()
        # Lengths go in too, so that no two folders can spell the same stream of bytes.
        digest.update(len(name).to_bytes(8, "big") + name)
        digest.update(one.stat().st_size.to_bytes(8, "big"))
        _feed(digest, one)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, path: Path) -> None:
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)


def _git(folder: Path, *arguments: str) -> str:
    """Output of a git command in a folder; empty if it fails or git is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
