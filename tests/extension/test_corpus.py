"""A corpus costs one file and its YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lkf_plugin.data.corpus import CORPORA
from tests.extension.conftest import LIMIT

FILES = ["my_corpora.py", "conf/data/mirrored.yaml"]
SMALL = ("data.sequences=24",)


def test_the_example_trains_and_is_measured(example, main, tmp_path: Path, capfd) -> None:
    mirrored = example("A corpus")
    assert mirrored.files == FILES and mirrored.lines <= LIMIT
    assert main(*mirrored.arguments, *SMALL) == 0, capfd.readouterr().err
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "kind: my_corpora.mirrored" in saved and "streaming: false" in saved
    [manifest] = (tmp_path / "cache" / "prepared").glob("mirrored-L16-*/manifest.json")
    covers = json.loads(manifest.read_text())["covers"]
    assert covers["options"] == {"sequences": 24, "seed": 0}
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").is_file()

    assert main(*mirrored.arguments, *SMALL, "mode=sample_eval") == 0, capfd.readouterr().err
    [record] = (tmp_path / "run" / "records").glob("mirrored.*.json")
    metrics = json.loads(record.read_text())["metrics"]
    assert 0 <= metrics["valid"]["value"] <= 1 and "entropy" in metrics
    assert main(*mirrored.arguments, *SMALL, "mode=ppl_eval") == 0, capfd.readouterr().err


def test_its_rule_knows_its_own_text(example) -> None:
    example("A corpus")
    mirrored = CORPORA["my_corpora.mirrored"]
    settings = mirrored.Settings(
        kind="my_corpora.mirrored",
        train="mirrored",
        valid="mirrored",
        tokenizer_name_or_path="mirrored",
        sequences=9,
        seed=1,
    )
    corpus = mirrored.from_settings(settings, 16, Path())
    blocks = {split: next(corpus.blocks(split))[0] for split in ("train", "valid")}
    for ids_SL in blocks.values():
        assert mirrored.rule.valid(torch.from_numpy(ids_SL)).tolist() == [True] * 9
        ids_SL[0, 0] = (ids_SL[0, 0] + 1) % 7
        assert mirrored.rule.valid(torch.from_numpy(ids_SL)).tolist() == [False] + [True] * 8
    assert (blocks["train"] != blocks["valid"]).any()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("data.sequences=0", "data.sequences=0 must be a whole number of at least 1."),
        ("+data.sedd=1", "not an option of data.kind=my_corpora.mirrored: did you mean data.seed?"),
        ("data.kind=my_corpora.mirorred", "corpus my_corpora.mirorred is unknown"),
        ("data.kind=our_corpora.mirrored", "put its folder on PYTHONPATH"),
    ],
)
def test_its_settings_are_checked(example, main, capfd, wrong: str, sentence: str) -> None:
    mirrored = example("A corpus")
    assert main(*mirrored.arguments, wrong) == 2
    err = capfd.readouterr().err
    assert sentence in err and "Traceback" not in err
