"""The command line as a user meets it: one sentence, no stack trace, a telling status."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from lkf_plugin import cli
from lkf_plugin.errors import UserError
from lkf_plugin.train.checkpoint import Preempted
from lkf_plugin.train.finite import NonFiniteError

ROOT = Path(__file__).resolve().parents[2]


def call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], *args: str
) -> tuple[int | str | None, str, str]:
    """Runs ``main()`` with these arguments: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lkf", *args])
    status: int | str | None = 0
    try:
        cli.main()
    except SystemExit as stop:
        status = stop.code
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["optim.learning_rate=1"], "optim.learning_rate"),
        (["nonsense=1"], "nonsense"),
        (["model=huge"], "huge"),
        (["model.n_blocks=many"], "model.n_blocks=many"),
        (["mode=fly"], "mode=fly"),
        (["=="], "=="),
    ],
)
def test_mistakes_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    arguments = ["host=builtin", *arguments]
    status, _, err = call(monkeypatch, tmp_path, capfd, *arguments)
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and told in err


def test_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LKF_TRACEBACK", "1")
    status, _, err = call(monkeypatch, tmp_path, capfd, "host=builtin", "mode=fly")
    assert status == 2 and "Traceback" in err and "error: mode=fly" in err


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (UserError("do this"), 2, "error: do this"),
        (NonFiniteError("step 3 has loss nan"), 1, "error: step 3 has loss nan"),
        (OSError(28, "No space left on device"), 2, "error: the disk is full"),
        (Preempted("saved step 5"), 143, "saved step 5"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_a_run_may_end_with(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    told: str,
) -> None:
    def fail(config: object) -> None:
        raise error

    monkeypatch.setattr(cli, "run", fail)
    got, _, err = call(monkeypatch, tmp_path, capfd, f"run_dir={tmp_path}")
    assert got == status and told in err and "Traceback" not in err


def test_bugs_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(config: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(cli, "run", fail)
    with pytest.raises(AssertionError, match="a bug"):
        call(monkeypatch, tmp_path, capfd, f"run_dir={tmp_path}")


def test_a_wrapped_mistake_is_still_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hydra wraps what an instantiated class raises."""
    status, _, err = call(
        monkeypatch,
        tmp_path,
        capfd,
        *("host=builtin", "data.train_sequences=40", "data.valid_sequences=12"),
        *(f"data.cache_dir={tmp_path}", "loader.global_batch_size=4", "loader.num_workers=0"),
        *("trainer.devices=1", "model.hidden_size=16", "model.n_blocks=1", "model.n_heads=2"),
        "checkpointing.every_n_steps=0",
    )
    assert status == 2 and "error: checkpointing.every_n_steps=0" in err


def test_main_py_shows_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["main.py", "--cfg", "job"])
    runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    assert "num_sample_batches" in capfd.readouterr().out
    assert not list(tmp_path.iterdir())
