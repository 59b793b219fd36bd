"""Sweeps (``python main.py -m key=1,2,3``): a place of its own for every job, and what came of it.

A training job's folder is ``run_dir`` with every swept setting that is not in it already, for
example ``small-mdlm-seed1-lr0.001``, so the same command goes on where each job was stopped. An
evaluation job of a swept training finds that folder; a setting that only evaluation knows
(``sampling.steps``, ``decode``, ...) leaves it as it is, and the evaluation's files carry a digest.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.errors import UserError

# Evaluation alone knows these: they never name a run.
EVALUATION = (
    "mode",
    "sampling",
    "decode",
    "eval",
    "loader.eval_batch_size",
    "loader.eval_global_batch_size",
    "trainer.limit_val_batches",
)
# Training and evaluation both know these: they name a run if there is one of that name.
EITHER = ("seed", "trainer.precision", "trainer.accelerator", "trainer.devices")
LONGEST_VALUE, LONGEST_NAME = 24, 160
SWEPT = "LKF_SWEPT"  # names of the swept settings, also for processes that a job starts


@dataclass
class Job:
    """One job of the sweep in this process.

    Attributes:
        number: counted from 0, as Hydra does.
        overrides: its swept settings, for people.
        status: 0, or how it failed.
        sentence: why it failed.
        folder: its run folder, once it is known.
    """

    number: int
    overrides: str
    status: int = 0
    sentence: str = ""
    folder: str = ""


_process: int | None = None  # the process that runs a sweep's jobs one after the other
_jobs: list[Job] = []
_trained: dict[str, Job] = {}  # which job trains in a folder


class SweepCallback(Callback):
    """Tells jobs what is swept (``hydra.callbacks`` in config.yaml)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Notes the swept settings; jobs in other processes inherit them."""
        global _process
        _process = os.getpid()
        _jobs.clear()
        _trained.clear()
        os.environ[SWEPT] = json.dumps(swept_settings(list(config.hydra.overrides.task)))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Forgets them."""
        os.environ.pop(SWEPT, None)


def swept_settings(overrides: list[str]) -> list[str]:
    """Keys and groups with more than one value, in the order they were typed."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    return [one.key_or_group for one in parsed if one.is_sweep_override()]


def in_sweep() -> bool:
    """Whether Hydra runs this as one of several jobs."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def begin_job() -> Job | None:
    """The job that starts now; None outside a sweep, or when another process keeps its books."""
    if not in_sweep() or _process != os.getpid():
        return None
    hydra = HydraConfig.get()
    values = _values(list(hydra.overrides.task))
    swept = json.loads(os.environ.get(SWEPT, "[]"))
    _jobs.append(Job(int(hydra.job.num), " ".join(f"{key}={values.get(key)}" for key in swept)))
    return _jobs[-1]


def finished_jobs() -> list[Job]:
    """The jobs since the last call."""
    jobs = list(_jobs)
    _jobs.clear()
    return jobs


def common_folder(jobs: list[Job]) -> str:
    """The folder above all jobs' run folders, relative to here where that is shorter."""
    parents = [str(Path(job.folder).parent) for job in jobs if job.folder]
    if not parents:
        return "."
    folder = os.path.commonpath(parents)
    return min(folder, os.path.relpath(folder), key=len)


def place_job(config: DictConfig) -> None:
    """In a sweep, gives ``run_dir`` the swept settings that it does not name; in place."""
    if not in_sweep():
        return
    hydra = HydraConfig.get()
    swept = json.loads(os.environ.get(SWEPT, "[]"))
    values = _values(list(hydra.overrides.task))
    choices = set(hydra.runtime.choices)
    place = job_folder(config, {key: values.get(key) for key in swept}, choices)
    with open_dict(config):
        config.run_dir = place
    if _jobs:
        _jobs[-1].folder = str(Path(hydra.runtime.cwd) / place)


def claim_folders(config: DictConfig) -> None:
    """Refuses a folder in which another job of this sweep trains.

    Raises:
        UserError: names both jobs.
    """
    if not _jobs or config.mode != "train" or _process != os.getpid() or not in_sweep():
        return
    job = _jobs[-1]
    for folder in {config.run_dir, config.checkpointing.save_dir}:
        other = _trained.setdefault(str(folder), job)
        if other is not job:
            raise UserError(
                f"Job {job.number} ({job.overrides}) would train in the folder of job "
                f"{other.number} ({other.overrides}), {folder}: sweep each value once, and leave "
                "checkpointing.save_dir to run_dir."
            )


def job_folder(config: DictConfig, swept: dict[str, str | None], choices: set[str]) -> str:
    """``run_dir`` of a job, before relative paths are worked out.

    Args:
        config: the job's configuration.
        swept: its value of every swept setting, as text.
        choices: the names of configuration groups.
    """
    base = str(config.run_dir).rstrip("/")
    names = {key: _as_number(config, key, value, choices) for key, value in swept.items()}
    missing = {
        key: value for key, value in names.items() if not _in_run_dir(config, key, value, choices)
    }
    if config.mode == "train":
        ours = {key: value for key, value in missing.items() if key != "mode"}
        return _with_settings(base, ours)
    named = {key: value for key, value in missing.items() if not _below(key, EVALUATION)}
    own = _with_settings(base, named)
    certain = {key: value for key, value in named.items() if not _below(key, EITHER)}
    if own != base and not Path(own).is_dir():
        return _with_settings(base, certain)
    return own


def _with_settings(base: str, settings: dict[str, str]) -> str:
    """``base-lr0.001-...``, in the order of the keys."""
    if not settings:
        return base
    short = [key.rpartition(".")[2].rpartition("/")[2] for key in settings]
    shown = {
        key: name if short.count(name) == 1 else key.replace("/", ".")
        for key, name in zip(settings, short, strict=True)
    }
    parts = [f"{shown[key]}{_slug(settings[key])}" for key in sorted(settings)]
    name = "-".join(parts)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 11]}-{_digest(name)}"
    return f"{base}-{name}"


def _slug(value: str) -> str:
    """A value as part of a file name; what had to be changed or cut gets a digest."""
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "_", value)
    if plain == value and 0 < len(plain) <= LONGEST_VALUE:
        return plain if re.match(r"[+-]?\d", plain) else f"-{plain}"
    tail = plain.strip("_.-")[-LONGEST_VALUE:].strip("_.-")
    return f"-{tail}-{_digest(value)}" if tail else f"-{_digest(value)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _values(overrides: list[str]) -> dict[str, str]:
    """Text of each override's value by its key or group."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    return {one.key_or_group: one.get_value_element_as_str() for one in parsed}


def _as_number(config: DictConfig, key: str, value: str | None, choices: set[str]) -> str:
    """One text for 1e-3 and 0.001: what the configuration has, except for a group's choice."""
    if key in choices:
        return str(value)
    try:
        present = OmegaConf.select(config, key, default=value)
        return "null" if present is None else str(present)
    except OmegaConfBaseException:
        return str(value)


def _below(key: str, roots: tuple[str, ...]) -> bool:
    return any(key == root or key.startswith((f"{root}.", f"{root}/")) for root in roots)


def _in_run_dir(config: DictConfig, key: str, value: str, choices: set[str]) -> bool:
    """Whether ``run_dir`` changes with a setting; found by changing it."""
    if key == "run_dir":
        return True
    probed = _names_below(config, key) if key in choices else [key]
    changes = any(_changes_run_dir(config, one) for one in probed)
    # a group may name itself by a word that two of its choices share
    return changes and (key not in choices or value in str(config.run_dir))


def _names_below(config: DictConfig, group: str) -> list[str]:
    """The settings of a group that name it."""
    node = OmegaConf.select(config, group.replace("/", "."))
    names = ("name", "train") if isinstance(node, DictConfig) else ()
    return [f"{group}.{name}" for name in names if name in node]


def _changes_run_dir(config: DictConfig, key: str) -> bool:
    other = copy.deepcopy(config)
    with open_dict(other):
        OmegaConf.update(other, key, "another-value", merge=False)
    try:
        return str(other.run_dir) != str(config.run_dir)
    except (OmegaConfBaseException, TypeError, ValueError):
        return True  # a resolver computes with it
