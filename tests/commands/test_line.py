"""``lkf COMMAND``: translations into the entry points."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from lkf_plugin import cli
from lkf_plugin.commands import line
from lkf_plugin.errors import UserError
from lkf_plugin.runs.command_line import command_line_of
from lkf_plugin.runs.settings import flatten, plain
from tests.cli.conftest import Compose, compose

__all__ = ["compose"]

COMMANDS = (
    ("experiment=demo", "model.num_components=4"),
    ("model=lkf-tiny", "loss=mixture", "data=text", "'data.path=/a b/é=1.txt'", "optim.lr=1e-2"),
    ("experiment=sotu_baseline", "method=duo", "seed=3"),
    ("experiment=own-text-mixture", "data.path=x.txt", "decode=best_of_m", "decode.min_prior=0"),
    ("model=small", "data=text8", "optim.name=muon", "strategy=ddp"),
)


def saved(config: Any) -> dict[str, Any]:
    """Settings as a run folder holds them."""
    return yaml.safe_load(yaml.safe_dump(plain(config)))


@pytest.mark.parametrize("overrides", COMMANDS)
def test_a_command_gives_back_the_settings(compose: Compose, overrides: tuple[str, ...]) -> None:
    given = [one.strip("'") if " " not in one else _quoted(one) for one in overrides]
    settings = saved(compose(*given))
    found = command_line_of(settings)
    again = flatten(saved(compose(*found.overrides)))
    before = flatten(settings)
    free = ("run_dir", "checkpointing", "callbacks", "logger")
    differing = {
        key: (value, again.get(key))
        for key, value in before.items()
        if not key.startswith(free) and str(again.get(key)) != str(value)
    }
    assert found.exact and differing == {}
    assert len(found.overrides) < 45


def _quoted(override: str) -> str:
    key, _, value = override.strip("'").partition("=")
    return f'{key}="{value}"'


def test_settings_that_no_command_gives_are_known(compose: Compose) -> None:
    settings = saved(compose("model=tiny"))
    del settings["optim"]["lr"]
    settings["optim"]["new"] = 1
    assert command_line_of(settings).exact  # what is missing is not asked for
    settings["trainer"]["max_steps"] = {"a": [1, None, "x y"]}
    found = command_line_of(settings)
    assert "+optim.new=1" in found.overrides and found.exact
    settings["optim"]["two words"] = 1
    assert not command_line_of(settings).exact


def test_translations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compose: Compose) -> None:
    assert line.translated([]) == []
    assert line.translated(["model=lkf", "-m"]) == ["model=lkf", "-m"]
    assert line.translated(["--cfg", "job"]) == ["--cfg", "job"]
    assert line.translated(["train", "seed=2"]) == ["mode=train", "seed=2"]
    assert line.translated(["eval"]) == ["mode=ppl_eval"]
    folder = tmp_path / "run"
    folder.mkdir()
    config = compose("model=tiny", "seed=7", "decode=commit", f"run_dir={folder}")
    OmegaConf.save(OmegaConf.create(plain(config)), folder / "config.yaml")
    arguments = line.translated(["sample", str(folder), "decode=best_of_m", "sampling.steps=3"])
    assert arguments[0] == "mode=sample_eval" and arguments[-1] == "sampling.steps=3"
    assert "seed=7" in arguments and f"run_dir={folder}" in arguments
    assert "decode=commit" not in arguments
    composed = compose(*arguments)
    assert composed.model.hidden_size == config.model.hidden_size and composed.seed == 7
    with pytest.raises(UserError, match="neither a command"):
        line.translated(["trian"])
    with pytest.raises(UserError, match="is no run folder"):
        line.translated(["eval", str(tmp_path)])
    with pytest.raises(UserError, match="write settings as key=value"):
        line.translated(["train", "folder"])


def test_the_console_script_hands_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(cli, "main", lambda: seen.append(sys.argv[1:]))
    for given in (["seed=1"], ["train", "seed=1"], []):
        monkeypatch.setattr(sys, "argv", ["lkf", *given])
        line.main()
    assert seen == [["seed=1"], ["mode=train", "seed=1"], []]
    for given, status, words in (
        (["trian"], 2, "neither a command"),
        (["export", str(tmp_path), str(tmp_path / "out")], 2, "is no run folder"),
        (["report", str(tmp_path / "none")], 2, "is no folder"),
        (["report", str(tmp_path)], 2, "no run folder under"),
        (["doctor"], 0, "CPU"),
    ):
        monkeypatch.setattr(sys, "argv", ["lkf", *given])
        with pytest.raises(SystemExit) as stop:
            line.main()
        out = capsys.readouterr()
        assert stop.value.code == status and words in (out.err if status else out.out)
    monkeypatch.setattr(sys, "argv", ["lkf", "help"])
    line.main()
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*line.MODES, *line.OTHERS))
