"""The console script ``lkf``: subcommands, each a translation into an entry point.

``train``, ``eval`` and ``sample`` are ``main.py`` with ``mode=``; an evaluation may name a run
folder in place of the settings that it was trained with. Without a subcommand the arguments are
``main.py``'s own, as before: ``lkf model=lkf loss=mixture``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lkf_plugin.errors import UserError

USAGE = """usage: lkf COMMAND ... or lkf key=value ...

  train  [key=value ...]         train, or go on where the run folder stands
  eval   [RUN] [key=value ...]   likelihood of a run (mode=ppl_eval)
  sample [RUN] [key=value ...]   samples of a run (mode=sample_eval)
  compare RUN RUN ...            likelihoods of runs, paired over the same sequences
  report FOLDER [--out FOLDER] [--html FILE]   runs side by side
  export RUN OUT [--push REPO]   a folder for the Hugging Face hub
  doctor                         what this machine can do
  harness --model_args path=RUN --tasks ...    lm-evaluation-harness on a run
  completion bash|zsh            a script for the shell: eval "$(lkf completion bash)"

lkf --help shows the settings; docs/command_line.md has examples.
"""
MODES = {"train": "train", "eval": "ppl_eval", "sample": "sample_eval"}


def _report(arguments: Sequence[str]) -> int:
    from lkf_plugin.report.command import main as report

    return report(arguments)


def _export(arguments: Sequence[str]) -> int:
    from lkf_plugin.hub.command import main as export

    return export(arguments)


def _doctor(arguments: Sequence[str]) -> int:
    from lkf_plugin.commands.doctor import main as doctor

    return doctor(arguments)


def _harness(arguments: Sequence[str]) -> int:
    from lkf_plugin.harness.command import main as harness

    return harness(arguments)


def _compare(arguments: Sequence[str]) -> int:
    from lkf_plugin.commands.compare import main as compare

    return compare(arguments)


def _completion(arguments: Sequence[str]) -> int:
    from lkf_plugin.commands.completion import main as completion

    return completion(arguments, (*MODES, *OTHERS, "help"))


OTHERS: dict[str, Callable[[Sequence[str]], int]] = {
    "compare": _compare,
    "report": _report,
    "export": _export,
    "doctor": _doctor,
    "harness": _harness,
    "completion": _completion,
}


def main() -> None:
    """Entry point of the console script; leaves with a status where a command has one."""
    arguments = sys.argv[1:]
    if arguments in (["help"], ["commands"]):
        print(USAGE, end="")
        return
    if arguments and arguments[0] in OTHERS:
        sys.exit(OTHERS[arguments[0]](arguments[1:]))
    try:
        sys.argv[1:] = translated(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    from lkf_plugin.cli import main as settings_main

    settings_main()


def translated(arguments: Sequence[str]) -> list[str]:
    """Arguments of ``main.py`` for those of ``lkf``.

    Raises:
        UserError: an unknown word, or a run whose settings cannot be read.
    """
    if not arguments or "=" in arguments[0] or arguments[0].startswith(("-", "+", "~")):
        return list(arguments)
    command, *rest = arguments
    if command not in MODES:
        raise UserError(
            f"{command} is neither a command ({', '.join((*MODES, *OTHERS))}) nor a setting "
            "(key=value): `lkf help` shows both."
        )
    mode = f"mode={MODES[command]}"
    if rest and not rest[0].startswith(("-", "+", "~")) and "=" not in rest[0]:
        if command == "train":
            raise UserError(
                f"lkf train {rest[0]}: write settings as key=value; the same settings go on where "
                "their run folder stands."
            )
        return [mode, *of_run(Path(rest[0]), rest[1:])]
    return [mode, *rest]


def of_run(folder: Path, given: Sequence[str]) -> list[str]:
    """Overrides that evaluate a run with the settings that it was trained with.

    Args:
        folder: the run folder.
        given: overrides that take the place of the run's own.

    Raises:
        UserError: no run folder, or settings that no command line gives.
    """
    from lkf_plugin.runs.command_line import command_line_of, word
    from lkf_plugin.runs.settings import load_settings

    settings = load_settings(folder)
    if settings is None:
        raise UserError(f"{folder} is no run folder: it has no config.yaml.")
    line = command_line_of(settings)
    if not line.exact:
        raise UserError(
            f"The settings of {folder} are of another version: name them by hand "
            f"(python main.py run_dir={folder} ...)."
        )
    cache = word(settings["data"]["cache_dir"])
    places = [f"run_dir={word(str(folder.resolve()))}", f"data.cache_dir={cache}"]
    own = [one for one in (*line.overrides, *places) if not _replaced(one, given)]
    return [*own, *given]


def _replaced(override: str, given: Sequence[str]) -> bool:
    """Whether an override is given anew, or lies in a group that is."""
    key = _key(override)
    return any(key == _key(one) or key.startswith(f"{_key(one)}.") for one in given)


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")
