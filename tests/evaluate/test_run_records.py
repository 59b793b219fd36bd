"""Whose record it is, and how its file is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.evaluate.run_records import RunRecords
from lkf_plugin.methods.method import method_name as method_of
from lkf_plugin.runs.load import LoadedRun


def config(*overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


@pytest.mark.parametrize(
    ("overrides", "method"),
    [
        (("model=lkf", "loss=mixture"), "lkf"),
        ((), "mdlm"),
        (("method=mdlm",), "mdlm"),
        (("method=ar", "model=ar"), "ar"),
        (("method=duo",), "duo"),
        (("host=mdlm", "parameterization=d3pm"), "d3pm"),
    ],
)
def test_whose_figures_they_are(overrides: tuple[str, ...], method: str) -> None:
    assert method_of(config(*overrides)) == method


def test_names_of_cells(tiny_mixture: LoadedRun, tmp_path: Path) -> None:
    records = RunRecords(tiny_mixture, tmp_path, 0)
    assert records.name("commit", 4) == "agreetext.M3.commit.J4"
    assert records.name("likelihood", None) == "agreetext.M3.likelihood"
