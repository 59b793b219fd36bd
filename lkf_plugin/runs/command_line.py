"""The command line that gives a run's settings, found from its ``config.yaml``.

Of every group the file that agrees best is taken, and then each setting that still differs; the
result is composed again, so that what is printed is known to give the settings (or said not to).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.config import register_resolvers
from lkf_plugin.config.folder import config_folder
from lkf_plugin.records.evaluation_name import PLACE_AND_LOG
from lkf_plugin.runs.settings import flatten, plain

GROUPS = ("model", "data", "loss", "method", "decode", "noise", "lr_scheduler", "strategy")
# Of the place, of other commands, or worked out of the rest of the settings by the program.
NOT_SAID = (*PLACE_AND_LOG, "mode", "data.cache_dir", "eval.checkpoint_path")
_ROUNDS = 4


@dataclass(frozen=True)
class CommandLine:
    """Overrides of ``main.py``.

    Attributes:
        overrides: unquoted.
        exact: whether composing them gives the settings.
    """

    overrides: list[str]
    exact: bool

    def __str__(self) -> str:
        return " ".join(["python main.py", *(shlex.quote(one) for one in self.overrides)])


def command_line_of(settings: Mapping[str, Any], leave_out: Sequence[str] = ()) -> CommandLine:
    """The command line of a run.

    Args:
        settings: a whole configuration as plain containers.
        leave_out: keys (or groups) that the command need not give, beside ``NOT_SAID``.
    """
    out = (*NOT_SAID, *leave_out)
    wanted = {k: v for k, v in flatten(dict(settings)).items() if not _under(k, out)}
    groups = [g for g in GROUPS if isinstance(settings.get(g), Mapping) and not _under(g, out)]
    chosen = [f"{group}={_best_file(group, settings)}" for group in groups]
    chosen = [one for one in chosen if one not in _defaults()]
    changes: dict[str, str] = {}
    differing: dict[str, Any] = {}
    for number in range(_ROUNDS):
        try:
            composed, followers = _composed([*chosen, *changes.values()])
        except (HydraException, OmegaConfBaseException):  # a name that no command line can hold
            return CommandLine([*chosen, *changes.values()], False)
        differing = {
            key: value
            for key, value in wanted.items()
            if key not in composed or not _equal(composed[key], value)
        }
        # what follows from other settings is given only where it does not
        first = [key for key in differing if key not in followers] if number == 0 else []
        for key in first or differing:
            sign = "" if key in composed else "+"
            changes[key] = f"{sign}{key}={word(wanted[key])}"
        if not differing:
            break
    return CommandLine([*chosen, *changes.values()], not differing)


def _under(key: str, places: Sequence[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def _best_file(group: str, settings: Mapping[str, Any]) -> str:
    """Name of the group's file whose plain values agree best with the settings."""
    own = flatten(dict(settings[group]))

    def agreement(path: Path) -> int:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if set(content) & {group} and isinstance(content[group], dict):  # of the whole tree
            content = content[group]
        values = flatten(content)
        named = sum(2 for key in ("name", "kind", "policy", "_target_") if _says(values, own, key))
        missing = sum(1 for key in values if key not in own)
        literal = {k: v for k, v in values.items() if k in own and "${" not in str(v)}
        equal = sum(1 if _equal(own[key], value) else -1 for key, value in literal.items())
        return equal + named - 2 * missing

    files = sorted((config_folder() / group).glob("*.yaml"))
    return max(files, key=agreement).stem


def _says(values: Mapping[str, Any], own: Mapping[str, Any], key: str) -> bool:
    """Whether file and settings have one value of a key, as far as the file knows it."""
    if key not in values or key not in own:
        return False
    start, follows, _ = str(values[key]).partition("${")
    return str(own[key]).startswith(start) if follows else bool(values[key] == own[key])


def _defaults() -> set[str]:
    """Choices that ``config.yaml`` makes by itself."""
    content = yaml.safe_load((config_folder() / "config.yaml").read_text(encoding="utf-8"))
    entries = [one for one in content["defaults"] if isinstance(one, dict)]
    return {f"{group}={name}" for one in entries for group, name in one.items()}


def _composed(overrides: list[str]) -> tuple[dict[str, Any], set[str]]:
    """(values by key, keys whose value follows from others) of what overrides compose."""
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", overrides=overrides)
    raw = flatten(OmegaConf.to_container(config, resolve=False))
    followers = {key for key, value in raw.items() if "${" in str(value)}
    missing = [key for key, value in raw.items() if value == "???"]
    for key in missing:
        OmegaConf.update(config, key, None)
    return {k: v for k, v in flatten(plain(config)).items() if k not in missing}, followers


def _equal(one: Any, other: Any) -> bool:
    """Equal as settings; YAML reads 1e-3 as a text."""
    try:
        numbers = not isinstance(one, bool) and not isinstance(other, bool)
        return one == other or (numbers and float(one) == float(other))
    except (TypeError, ValueError):
        return False


def word(value: Any) -> str:
    """A value as Hydra's grammar reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(word(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{word(one)}" for key, one in value.items()) + "}"
    text = str(value)
    if text and all(c.isascii() and (c.isalnum() or c in "_-./") for c in text):
        plain_text = yaml.safe_load(text)
        if isinstance(plain_text, str):
            return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
