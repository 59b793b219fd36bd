"""Every command in the pages, the scripts' docstrings and the YAML comments can be typed.

``python main.py ...`` composes and validates, a script's arguments are understood by its parser, a
make target is there. Nothing is trained or measured.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from lkf_plugin.commands.line import MODES, OTHERS
from lkf_plugin.config import register_resolvers, resolve_paths, validate
from lkf_plugin.config.folder import config_folder
from lkf_plugin.errors import UserError
from tests.docs.commands import ROOT, Command, commands, commands_of
from tests.extension.conftest import PAGE, example

__all__ = ["example"]

COMMANDS = commands()
BY_PROGRAM = {
    program: [c for c in COMMANDS if c.words[0].startswith(program)]
    for program in ("python", "make", "lkf", "torchrun")
}
COSTS = PAGE.read_text(encoding="utf-8").split("\n## What an extension costs\n", 1)[1]
EXAMPLES = re.findall(r"^### (.+)$", COSTS, re.MULTILINE)  # sections whose files a command needs
NO_ARGUMENTS = ("portable.py", "bench_judge.py")  # or pytest's
Compose = Callable[..., DictConfig]


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield lambda *overrides: hydra_compose("config", overrides=list(overrides))
    GlobalHydra.instance().clear()


def main_arguments(words: tuple[str, ...]) -> list[str] | None:
    """What is given to main.py, or None for another program."""
    if words[0] == "lkf" and words[1] in MODES:
        named = len(words) > 2 and "=" not in words[2]  # a run folder, whose settings are added
        return [f"mode={MODES[words[1]]}", *words[2 + named :]]
    if words[0] == "lkf":
        return None if words[1] in (*OTHERS, "help") else list(words[1:])
    if words[0] in ("python", "python3") and words[1] == "main.py":
        return list(words[2:])
    if words[0] == "torchrun" and "main.py" in words:
        return list(words[words.index("main.py") + 1 :])
    return None


def overrides_of(arguments: list[str], folder: Path) -> list[str]:
    """Overrides of one job: flags of Hydra are taken out, of a sweep the first value is taken."""
    overrides: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--config-dir":
            overrides.append(f"hydra.searchpath=[file://{folder / waiting.pop(0)}]")
        elif word == "--cfg":
            assert waiting.pop(0) in ("job", "hydra", "all")
        elif word not in ("-m", "--multirun", "--help"):
            assert not word.startswith("-"), word
            overrides.append(word)
    parsed = OverridesParser.create().parse_overrides(overrides)
    return [
        f"{one.get_key_element()}={next(iter(one.sweep_string_iterator()))}"
        if one.is_sweep_override()
        else text
        for one, text in zip(parsed, overrides, strict=True)
    ]


def check_main(arguments: list[str], compose: Compose, folder: Path) -> None:
    """Composes and validates one job."""
    config = compose(*overrides_of(arguments, folder))
    resolve_paths(config, folder)
    validate(config, "mdlm" if config.host == "mdlm" else "builtin")


@pytest.mark.parametrize("command", [c for c in COMMANDS if main_arguments(c.words)], ids=str)
def test_main_py(command: Command, compose: Compose, example, tmp_path: Path) -> None:
    arguments = main_arguments(command.words)
    assert arguments is not None
    if "--config-dir" in arguments:
        for heading in EXAMPLES:
            example(heading)
    check_main(arguments, compose, tmp_path)


class Parsed(BaseException):
    """The arguments were understood."""


PARSE = argparse.ArgumentParser.parse_args


def parse_and_stop(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> None:
    """In place of ``parse_args``: the work does not begin."""
    raise Parsed(PARSE(self, *args, **kwargs))  # type: ignore[arg-type]


def check_script(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a script up to the end of its parsing."""
    path = ROOT / words[0]
    assert path.is_file(), f"there is no {words[0]}"
    if path.name in NO_ARGUMENTS:
        assert not [word for word in words[1:] if word.startswith("--")], words
        return
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", [str(path), *words[1:]])
    monkeypatch.syspath_prepend(str(path.parent))
    with pytest.raises(Parsed):
        runpy.run_path(str(path), run_name="__main__")


def parses(path: Path) -> bool:
    """Whether a script, or a module of ours that it imports, has a parser."""
    text = path.read_text(encoding="utf-8")
    modules = re.findall(r"^from ((?:lkf_plugin|experiments)[\w.]*) import", text, re.MULTILINE)
    files = [path, *(ROOT / f"{module.replace('.', '/')}.py" for module in modules)]
    return any("parse_args(" in f.read_text(encoding="utf-8") for f in files if f.is_file())


HOOKS = ROOT / "scripts" / "docs_hooks.py"  # of mkdocs, no command
SCRIPTS = sorted({*ROOT.glob("scripts/*.py"), *ROOT.glob("benchmarks/bench_*.py")} - {HOOKS})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_or_takes_no_arguments(path: Path) -> None:
    """What the next test relies on, so that it never starts the work itself."""
    assert parses(path) != (path.name in NO_ARGUMENTS)


@pytest.mark.parametrize(
    "command",
    [c for c in BY_PROGRAM["python"] if c.words[1] not in ("main.py", "-m")],
    ids=str,
)
def test_scripts(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parses(ROOT / command.words[1]) or Path(command.words[1]).name in NO_ARGUMENTS
    check_script(command.words[1:], monkeypatch)


@pytest.mark.parametrize(
    "command", [c for c in BY_PROGRAM["lkf"] if c.words[1] in OTHERS], ids=str
)
def test_other_commands_of_lkf(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    if command.words[1] == "harness":
        pytest.importorskip("lm_eval", reason="pip install 'lkf-plugin[harness]'")
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises(Parsed):
        OTHERS[command.words[1]](command.words[2:])


@pytest.mark.parametrize("command", BY_PROGRAM["make"], ids=str)
def test_make(command: Command) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):(?!=)", text, re.MULTILINE))
    variables = set(re.findall(r"^(\w+) \?=", text, re.MULTILINE))
    for word in command.words[1:]:
        name, given, _ = word.partition("=")
        assert name in (variables if given else targets), word


@pytest.mark.parametrize(
    "command", [c for c in BY_PROGRAM["python"] if c.words[1] == "-m"], ids=str
)
def test_modules_of_python(command: Command) -> None:
    """``python -m pytest PATHS``: the paths are there."""
    assert command.words[2] in ("pytest", "pip", "venv", "pre_commit"), command.words[2]
    if command.words[2] == "pytest":
        paths = [word for word in command.words[3:] if "/" in word]
        assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []


def test_there_are_commands_of_each_kind() -> None:
    assert len([c for c in COMMANDS if main_arguments(c.words)]) > 50
    assert len(BY_PROGRAM["make"]) > 5 and len(BY_PROGRAM["python"]) > 80
    assert {c.place for c in COMMANDS} >= {"README.md", "docs/text.md", "scripts/evaluate.py"}


# --- what is wrong is seen ---------------------------------------------------------------------


def test_commands_are_read() -> None:
    text = """
    some output: make it so
    for J in 1 2; do
      A_B=1 python main.py x=$J ... \\
        'sampling.prompt="a b"'   # why
    python main.py a=1 && make demo
    """
    assert [command.words for command in commands_of(text, "")] == [
        ("python", "main.py", "x=4", 'sampling.prompt="a b"'),
        ("python", "main.py", "a=1"),
        ("make", "demo"),
    ]


@pytest.mark.parametrize("wrong", ["optim.learning_rate=1", "data=novels", "model.n_blocks=many"])
def test_a_wrong_setting_is_seen(wrong: str, compose: Compose, tmp_path: Path) -> None:
    with pytest.raises(Exception) as error:
        check_main([wrong], compose, tmp_path)
    assert isinstance(error.value, UserError) or "hydra" in type(error.value).__module__


def test_a_wrong_argument_is_seen(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with pytest.raises(SystemExit):
        check_script(("scripts/reproduce.py", "main", "--scales", "tiny"), monkeypatch)
    assert "--scales" in capsys.readouterr().err
