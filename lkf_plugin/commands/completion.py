"""``lkf completion bash|zsh``: a script with every command, option, setting and choice in it.

The words are written into the script, so that a Tab asks no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lkf_plugin.config.folder import config_folder

OPTIONS = {
    "report": ("--out", "--html", "--no-figures"),
    "export": ("--checkpoint", "--push"),
    "compare": ("--steps", "--sequences", "--draws", "--seed", "--device"),
    "harness": ("--model_args", "--tasks", "--limit", "--output_path", "--device"),
    "completion": ("bash", "zsh"),
    "doctor": (),
    "help": (),
}
WORDS = """\
# What may follow `lkf $1`.
_lkf_words() {{
  case "$1" in
{cases}
    *) echo "{commands} {settings}" ;;
  esac
}}
"""
BASH = """\
_lkf() {
  local line="${COMP_LINE:0:$COMP_POINT}" token first
  token="${line##* }"
  first="${COMP_WORDS[1]}"
  [ "$COMP_CWORD" -le 1 ] && first=""
  COMPREPLY=($(compgen -W "$(_lkf_words "$first")" -- "$token"))
  # bash takes words apart at = and replaces what follows it only
  case "$token" in
    *=*) COMPREPLY=("${COMPREPLY[@]#"${token%%=*}="}") ;;
  esac
}
complete -o nospace -o default -F _lkf lkf
"""
ZSH = """\
_lkf() {
  local first="" offered
  (( CURRENT > 2 )) && first="${words[2]}"
  offered=(${=$(_lkf_words "$first")})
  # no space after a key, whose value follows; where no word fits, files are offered
  compadd -S '' -- ${(M)offered:#*=}
  compadd -- ${offered:#*=}
  (( compstate[nmatches] )) || _default
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _lkf lkf
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH}


def words_of_settings() -> list[str]:
    """``key=`` of every setting, and ``group=choice`` of every configuration group."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from lkf_plugin.config import register_resolvers

    register_resolvers()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config")
    return sorted({*_keys(config), *_choices(config_folder())})


def _keys(config: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key in config:
        place = f"{above}{key}"
        node = config._get_node(key)  # type: ignore[attr-defined]  # its interpolations stay
        if isinstance(node, Mapping) and not str(key).startswith("_"):
            yield from _keys(node, f"{place}.")
        elif not str(key).startswith("_"):
            yield f"{place}="


def _choices(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.yaml")):
        group = path.parent.relative_to(folder).as_posix()
        if group != ".":
            yield f"{group}={path.stem}"


def script(shell: str, commands: Sequence[str]) -> str:
    """The script for a shell.

    Args:
        shell: one of ``SCRIPTS``.
        commands: names of the subcommands.
    """
    cases = "\n".join(
        f'    {name}) echo "{" ".join(OPTIONS[name])}" ;;' for name in commands if name in OPTIONS
    )
    settings = " ".join(words_of_settings())
    words = WORDS.format(cases=cases, commands=" ".join(commands), settings=settings)
    return words + SCRIPTS[shell]


def main(arguments: Sequence[str], commands: Sequence[str]) -> int:
    """Prints the script."""
    parser = argparse.ArgumentParser(
        prog="lkf completion", description='Words for a shell: eval "$(lkf completion bash)"'
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS))
    args = parser.parse_args(arguments)
    print(script(args.shell, commands), end="")
    return 0
