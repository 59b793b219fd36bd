"""One sentence and an exit status for every foreseen way to fail."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.errors import UserError

# What the system says of a path, in words that say what to do. Everything else keeps its traceback.
PATH_ERRORS = {
    errno.EACCES: "may not be opened (permission denied): change its permissions or name another",
    errno.EPERM: "may not be changed (not permitted): change its permissions or name another",
    errno.EROFS: "is on a read-only file system: name a place that can be written",
    errno.ENOENT: "does not exist: check the path",
    errno.EEXIST: "exists already and is in the way: move it, or name another place",
    errno.EISDIR: "is a folder where a file is needed: name a file, or move the folder",
    errno.ENOTDIR: "lies below a file, not below a folder: move that file, or name another place",
    errno.ENOTEMPTY: "is a folder with something in it, and in the way: move it",
    errno.ENAMETOOLONG: "has too long a name: shorten it",
    errno.ELOOP: "is a loop of links: name the file itself",
    errno.ENXIO: "is no ordinary file: name one",
    errno.ENODEV: "is no ordinary file: name one",
    errno.EINVAL: "is no path that this system takes: name another",
    errno.EBUSY: "is in use by another process: wait for it, or name another",
    errno.ETXTBSY: "is in use by another process: wait for it, or name another",
    errno.ESTALE: "is gone from the network file system: run the same command again",
    errno.EIO: "could not be read or written (input/output error): check the disk",
    errno.EFBIG: "would be larger than this file system allows: name another place",
}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def print_lines(work: Callable[[], Iterable[object]]) -> int:
    """Prints what ``work`` gives as it comes.

    Returns:
        0, or after a foreseen failure, which is told in one sentence on stderr, its exit status.
    """
    try:
        for line in work():
            print(line, flush=True)
    except Exception as error:
        words = foreseen(error)
        if words is None:
            raise
        print(f"error: {words[0]}", file=sys.stderr)
        return words[1]
    return 0


def foreseen(error: BaseException) -> tuple[str, int] | None:
    """Sentence and status of a mistake or a foreseen failure, which may be wrapped in others.

    Returns:
        None for a bug, which keeps its traceback.
    """
    from lkf_plugin.train.finite import NonFiniteError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return sentence(cause), 2
        if isinstance(cause, NonFiniteError):
            return sentence(cause), 1
        if isinstance(cause, OSError) and (words := path_sentence(cause)):
            return words, 2
        cause = cause.__cause__
    if isinstance(error, HydraException | OmegaConfBaseException):
        return sentence(error), 2
    if isinstance(error, ValueError) and str(error).startswith("Config group override must be"):
        return "a group (model=, data=, loss=, ...) takes one of its names: `--help` shows them", 2
    return None


def path_sentence(error: OSError) -> str | None:
    """What is wrong with a path or a disk; None if the error is about neither."""
    if error.errno in DISK_FULL:
        return f"the disk is full ({error}): free some space and run the same command again"
    if error.errno == errno.EMFILE:
        return "too many files are open at once: raise the limit (ulimit -n), or loader.num_workers"
    if error.errno not in PATH_ERRORS or error.filename is None:
        return None
    # of a rename, the target is what the user named
    name = error.filename2 if error.filename2 is not None else error.filename
    return f"{os.fsdecode(name) if isinstance(name, bytes) else name} {PATH_ERRORS[error.errno]}"


def sentence(error: BaseException) -> str:
    """The message on one line; Hydra's and OmegaConf's further lines are detail."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, UserError) or not lines:
        return " ".join(lines) or type(error).__name__
    if isinstance(error, OverrideParseException):
        return unreadable_override(error.override)
    if several := re.match(r"Ambiguous value for argument '(.*)'$", lines[0]):
        return _several_values(several[1])
    keep = [line for line in lines if not line.startswith(("full_key", "object_type", "reference"))]
    unknown = re.match(r"Could not (?:override|append to config)[^']*'([^']+)'", keep[0])
    if unknown:
        return f"{unknown[1]} is no setting: `--cfg job` shows all that there are"
    missing = re.search(r"Missing mandatory value: (\S+)", " ".join(keep))
    if missing:
        return f"{missing[1]} must be set"
    if any(line.startswith("Available options in") for line in keep):
        start = next(i for i, line in enumerate(keep) if line.startswith("Available options in"))
        choices = itertools.takewhile(lambda line: not line.endswith(":"), keep[start + 1 :])
        group, _, name = keep[start - 1].rpartition("'")[0].rpartition("'")[2].partition("/")
        return f"{group}={name} is unknown: take {', '.join(choices)}"
    return " ".join(keep[:2])


def unreadable_override(override: str) -> str:
    """What to type in place of an argument that Hydra's grammar does not take."""
    key, equals, value = override.partition("=")
    shown = " ".join(override.split()) or repr(override)
    if not equals:
        return f"{shown} is no setting: write key=value"
    if "\n" in value:
        return f"{shown} has a line break, which no setting can have: remove it, or rename the file"
    quoted = quoted_override(key, value) if key else None
    if quoted is None:
        return f"{shown} cannot be read: write key=value"
    return f"{shown} has characters that need quotes: quote it, {quoted}"


def quoted_override(key: str, value: str) -> str | None:
    """``'key="value"'`` as the shell takes it; None if that cannot be read either."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    text = f'{key}="{escaped}"'
    try:
        parsed = OverridesParser.create().parse_override(text)
    except HydraException:
        return None
    return None if parsed.is_sweep_override() else shlex.quote(text)


def _several_values(override: str) -> str:
    key, _, value = override.partition("=")
    quoted = quoted_override(key, value)
    advice = "" if quoted is None else f", or if it is one value quote it, {quoted}"
    return f"{override} is several values: add -m to run each{advice}"
