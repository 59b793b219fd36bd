"""The command line: ``python main.py key=value ...``, or ``lkf`` once installed.

Mistakes are told in one sentence on stderr. Exit status: 0 done, 1 failed, 2 a mistake in what was
asked for, 130 interrupted, 143 stopped by SIGTERM after saving. LKF_TRACEBACK=1 shows where.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.config import register_resolvers, resolve_paths, validate
from lkf_plugin.errors import UserError


def config_folder() -> Path:
    """The YAML files: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).resolve().parent / "configs"
    return inside if inside.is_dir() else inside.parents[1] / "configs"


def run(config: DictConfig) -> Any:
    """Does what a composed configuration asks for."""
    from lkf_plugin.upstream.select import select_host

    resolve_paths(
        config, HydraConfig.get().runtime.cwd if HydraConfig.initialized() else os.getcwd()
    )
    host = select_host(config)
    validate(config, host)
    if config.mode == "sample_eval":
        from lkf_plugin.modes.sample_eval import sample_eval

        return sample_eval(config, host)
    if host == "mdlm":
        from lkf_plugin.upstream.run import run as run_in_mdlm

        return run_in_mdlm(config)
    if config.mode == "ppl_eval":
        from lkf_plugin.modes.ppl_eval import ppl_eval

        return ppl_eval(config)
    from lkf_plugin.modes.train import train

    return train(config)


def main() -> None:
    """Entry point of ``main.py`` and of the console script ``lkf``."""
    register_resolvers()
    # Hydra would print its own report and leave; we want its exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    entry = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
    with _plain_words():
        entry(_job)()


def _job(config: DictConfig) -> None:
    """One run. It leaves by ``SystemExit``, which Hydra lets through without a report."""
    with _plain_words():
        run(config)


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """Turns every foreseen way to fail into a sentence and a status; bugs keep their traceback."""
    try:
        yield
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning's way to leave
            _leave("interrupted; the same command goes on from the last checkpoint", 130)
        if sentence := getattr(stop, "sentence", None):
            _tell(sentence)
            sys.exit(stop.code)
        raise
    except Exception as error:
        told = _foreseen(error)
        if told is None:
            raise
        _leave(*told)


def _foreseen(error: Exception) -> tuple[str, int] | None:
    """Sentence and status of a mistake or a foreseen failure, which may be wrapped in others."""
    from lkf_plugin.train.finite import NonFiniteError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return _sentence(cause), 2
        if isinstance(cause, NonFiniteError):
            return _sentence(cause), 1
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full ({cause}): free some space and run the same command again", 2
        cause = cause.__cause__
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _sentence(error), 2
    return None


def _sentence(error: BaseException) -> str:
    """The message on one line; Hydra's and OmegaConf's further lines are detail."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, UserError) or not lines:
        return " ".join(lines) or type(error).__name__
    keep = [line for line in lines if not line.startswith(("full_key", "object_type", "reference"))]
    unknown = re.match(r"Could not override '([^']+)'", keep[0])
    if unknown:
        return f"{unknown[1]} is no setting: `--cfg job` shows all that there are"
    if any(line.startswith("Available options in") for line in keep):
        start = next(i for i, line in enumerate(keep) if line.startswith("Available options in"))
        choices = itertools.takewhile(lambda line: not line.endswith(":"), keep[start + 1 :])
        group, _, name = keep[start - 1].rpartition("'")[0].rpartition("'")[2].partition("/")
        return f"{group}={name} is unknown: take {', '.join(choices)}"
    return " ".join(keep[:2])


def _leave(sentence: str, status: int) -> NoReturn:
    if os.environ.get("LKF_TRACEBACK") == "1":
        traceback.print_exc()
    _tell(f"error: {sentence}")
    sys.exit(status)


def _tell(sentence: str) -> None:
    """Writes to stderr; of several processes on a machine, the first one does."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
