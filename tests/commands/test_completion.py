"""The script for the shell completes in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lkf_plugin.commands.completion import OPTIONS, words_of_settings
from lkf_plugin.commands.line import MODES, OTHERS, _completion


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert _completion(["bash"]) == 0
    path = tmp_path_factory.mktemp("shell") / "lkf.bash"
    path.write_text(out.getvalue())
    return path


def completed(script: Path, line: str) -> list[str]:
    """What a Tab at the end of a line offers; bash takes words apart at ``=``, too."""
    words = " ".join(f"'{word}'" for word in line.replace("=", " = ").split(" "))
    number = len(line.replace("=", " = ").split(" ")) - 1
    typed = f"source {script}; COMP_LINE='{line}' COMP_POINT={len(line)} COMP_CWORD={number}"
    typed += f"; COMP_WORDS=({words}); _lkf; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_tab_offers_what_there_is(script: Path) -> None:
    assert completed(script, "lkf com") == ["compare", "completion"]
    assert completed(script, "lkf report --h") == ["--html"]
    assert completed(script, "lkf train optim.mu") == ["optim.muon_lr="]
    assert completed(script, "lkf train data=te") == ["text", "text8"]
    assert "best_of_m" in completed(script, "lkf sample outputs/x decode=b")
    assert completed(script, "lkf completion z") == ["zsh"]


def test_every_command_and_setting_is_known() -> None:
    assert set(OTHERS) <= set(OPTIONS) and not set(MODES) & set(OPTIONS)
    words = words_of_settings()
    assert {"trainer.max_steps=", "experiment=upcycle", "hydra/launcher=slurm"} <= set(words)
    assert "seed=" in words and not [word for word in words if "_target_" in word]
