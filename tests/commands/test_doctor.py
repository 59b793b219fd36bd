"""``lkf doctor`` says what is there, and never fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lkf_plugin.commands import doctor
from lkf_plugin.errors import UserError
from lkf_plugin.upstream.checkout import SOURCES


def rows() -> dict[str, doctor.Row]:
    return {row.what: row for row in doctor.look()}


def test_it_says_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LKF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MDLM_HOME", raising=False)
    found = rows()
    assert found["torch"].found == torch.__version__
    assert str(torch.get_num_threads()) in found["CPU"].found
    assert torch.backends.cpu.get_cpu_capability() in found["CPU"].found
    assert found["cache folder"].found == str(tmp_path / "cache")
    assert "will be made" in found["cache folder"].means
    assert (found["GPU"].found == "none") is not torch.cuda.is_available()
    assert not any(row.found == "unknown" for row in found.values())


def test_an_mdlm_checkout_is_compared_with_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setenv("MDLM_HOME", str(tmp_path))
    row = rows()["MDLM checkout"]
    assert row.found == str(tmp_path.resolve()) and "another commit" in row.means
    monkeypatch.setenv("MDLM_HOME", str(tmp_path / "absent"))
    wrong = rows()["mdlm"]
    assert wrong.found == "unknown" and "MDLM_HOME" in wrong.means


def test_what_is_missing_ends_in_a_row_and_status_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def _broken() -> doctor.Row:
        raise UserError("no such thing\nand more")

    monkeypatch.setattr(doctor, "LOOKS", (*doctor.LOOKS, _broken))
    assert doctor.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split() == ["broken", "unknown", "no", "such", "thing"]
    assert len(lines) == len(doctor.LOOKS)
    starts = {line.index(row.found) for line, row in zip(lines, doctor.look(), strict=True)}
    assert len(starts) == 1  # columns stand under one another
