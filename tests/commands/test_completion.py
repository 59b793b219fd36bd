"""The scripts for the shells complete in a real bash and in a real zsh."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lkf_plugin.commands.completion import OPTIONS, words_of_settings
from lkf_plugin.commands.line import MODES, OTHERS, _completion


@pytest.fixture(scope="module")
def script_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The script for a shell, as the command prints it."""
    import contextlib
    import io

    def script(shell: str) -> Path:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert _completion([shell]) == 0
        path = tmp_path_factory.mktemp("shell") / f"lkf.{shell}"
        path.write_text(out.getvalue())
        return path

    return script


def in_bash(script: Path, line: str) -> list[str]:
    """What a Tab at the end of a line offers; bash takes words apart at ``=``, too."""
    words = " ".join(f"'{word}'" for word in line.replace("=", " = ").split(" "))
    number = len(line.replace("=", " = ").split(" ")) - 1
    typed = f"source {script}; COMP_LINE='{line}' COMP_POINT={len(line)} COMP_CWORD={number}"
    typed += f"; COMP_WORDS=({words}); _lkf; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_tab_offers_what_there_is(script_of: Callable[[str], Path]) -> None:
    script = script_of("bash")
    assert in_bash(script, "lkf com") == ["compare", "completion"]
    assert in_bash(script, "lkf report --h") == ["--html"]
    assert in_bash(script, "lkf train optim.mu") == ["optim.muon_lr="]
    assert in_bash(script, "lkf train data=te") == ["text", "text8"]
    assert "best_of_m" in in_bash(script, "lkf sample outputs/x decode=b")
    assert in_bash(script, "lkf completion z") == ["zsh"]


def in_zsh(script: Path, lines: list[str], folder: Path) -> list[str]:
    """What stands on each line after a Tab, in a shell that somebody sits at.

    Ctrl-X writes the line into a file and clears it.
    """
    told = folder / "lines"
    start = [
        f"source {script}", "unsetopt beep",
        f'note() {{ print -r -- "$BUFFER|" >> {told}; BUFFER="" }}',
        "zle -N note", "bindkey '^X' note", f"touch {told}", "",
    ]  # fmt: skip
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ |= {"HOME": str(folder), "TERM": "dumb", "PS1": ""}
        os.execlp("zsh", "zsh", "-f", "-i")
    try:
        os.write(terminal, "\n".join(start).encode())
        wait_for(terminal, told.is_file)
        for number, line in enumerate(lines, 1):
            os.write(terminal, f"{line}\t\x18".encode())
            wait_for(terminal, lambda: len(told.read_text().splitlines()) == number)  # noqa: B023
        os.write(terminal, b"exit\n")
        return told.read_text().splitlines()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def wait_for(terminal: int, there: Callable[[], bool]) -> None:
    """Reads what the terminal shows until something is there, a minute at most."""
    shown, until = b"", time.monotonic() + 60
    while not there():
        assert time.monotonic() < until, shown.decode(errors="replace")[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here: apt-get install zsh")
def test_a_tab_in_zsh_writes_what_is_certain(
    script_of: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "some-run").mkdir()
    expected = {
        "lkf com": "lkf comp",  # compare, completion
        "lkf repo": "lkf report ",
        "lkf report --h": "lkf report --html ",
        "lkf train optim.mu": "lkf train optim.muon_lr=",
        "lkf train data=te": "lkf train data=text",  # text, text8
        "lkf sample outputs/x decode=defer": "lkf sample outputs/x decode=deferred ",
        "lkf eval some": "lkf eval some-run/",
        "lkf completion z": "lkf completion zsh ",
    }
    found = in_zsh(script_of("zsh"), list(expected), tmp_path)
    assert found == [f"{line}|" for line in expected.values()]


def test_every_command_and_setting_is_known() -> None:
    assert set(OTHERS) <= set(OPTIONS) and not set(MODES) & set(OPTIONS)
    words = words_of_settings()
    assert {"trainer.max_steps=", "experiment=upcycle", "hydra/launcher=slurm"} <= set(words)
    assert "seed=" in words and not [word for word in words if "_target_" in word]
