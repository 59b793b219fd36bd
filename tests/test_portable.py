"""`make portable` runs what it says, and fails when one of its runs does."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def portable() -> dict:
    return runpy.run_path(str(ROOT / "scripts" / "portable.py"))


def test_every_width_up_to_the_machines_own(portable) -> None:
    settings = portable["settings_of"]
    assert settings("avx512") == [("default", 1), ("avx2", 1), ("avx512", 1), ("avx512", 2)]
    assert settings("default") == [("default", 1), ("default", 2)]
    assert settings("sve256") == [("default", 1), (None, 1), (None, 2)]


def test_what_is_left_out_exists(portable) -> None:
    assert all((ROOT / path).exists() for path in portable["NOT_NUMERIC"])


@pytest.mark.slow
def test_each_run_has_its_capability_and_a_failure_is_shown(
    portable, tmp_path, capfd, monkeypatch
) -> None:
    seen = tmp_path / "seen"
    test = tmp_path / "test_it.py"
    test.write_text(
        "import os, torch\n"
        "def test_it():\n"
        "    capability = torch.backends.cpu.get_cpu_capability().lower()\n"
        f"    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write(f'{capability} {torch.get_num_threads()}\\n')\n"
        "    assert capability != os.environ.get('REFUSED')\n"
    )
    own = portable["own_capability"]()
    wanted = [f"{width or own} {threads}" for width, threads in portable["settings_of"](own)]
    monkeypatch.setattr(sys, "argv", ["portable.py", str(test)])
    assert portable["main"]() == 0
    assert sorted(seen.read_text().splitlines()) == sorted(wanted)
    monkeypatch.setenv("REFUSED", "default")
    assert portable["main"]() == 1
    out = capfd.readouterr().out
    assert "default on 1 thread failed" in out and "assert" in out
