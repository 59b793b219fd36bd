"""The command behind the tables: trains what is missing, measures what has no record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.paper import reproduce as command
from experiments.paper.plan import TABLES
from experiments.paper.scales import SCALES, Corpus
from lkf_plugin.errors import UserError
from lkf_plugin.records.record import read_record
from tests.evaluate.small_run import HERE, TINY

ONE = Corpus(
    name="agreetext",
    components=(1,),
    train=(*TINY, *HERE),
    mixture=(),
    tables=("main",),
    grid=(1, 2),
    samples=4,
    sequences=8,
    judge=None,
    judged_chains=None,
    self_bleu=0,
    batch_size=4,
)


def test_a_row_is_trained_and_measured_once(tmp_path: Path) -> None:
    corpus = replace(ONE, train=(*ONE.train, f"data.cache_dir={tmp_path / 'cache'}"))
    folder = command.reproduce([corpus], ["main"], tmp_path, "M1.commit", workers=1)
    files = sorted((folder / "agreetext").glob("*.json"))
    assert [path.stem.split(".")[1:] for path in files] == [
        ["M1", "commit", "J1"],
        ["M1", "commit", "J2"],
    ]
    assert read_record(files[0]).samples == 4
    checkpoints = corpus.run_folder(tmp_path, 1) / "checkpoints"
    stamps = {path: path.stat().st_mtime_ns for path in [*files, *checkpoints.iterdir()]}
    command.reproduce([corpus], ["main"], tmp_path, "M1.commit", workers=1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_mistakes_are_told_before_any_training(tmp_path: Path, monkeypatch) -> None:
    def start(*_):
        raise AssertionError("nothing may be trained")

    monkeypatch.setattr(command, "_start", start)
    with pytest.raises(UserError, match="no cell of main has M1.nothing"):
        command.reproduce([ONE], ["main"], tmp_path, "M1.nothing", workers=1)
    deaf = replace(ONE, judge=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        command.reproduce([deaf], ["main"], tmp_path, None, workers=1)


def test_a_failed_training_shows_its_last_line(tmp_path: Path) -> None:
    broken = replace(ONE, train=(*ONE.train, "model.n_heads=3"))
    with pytest.raises(UserError, match=r"M=1 failed \(.*n_heads=3.*\): see .*train-M1.log"):
        command.reproduce([broken], ["main"], tmp_path, None, workers=1)


def test_mixtures_that_start_from_a_model_wait_for_it(tmp_path: Path, monkeypatch) -> None:
    started = []

    class Done:
        returncode = 0

        def wait(self):
            started.append("done")

    def start(corpus, M, out, side_by_side):
        started.append((M, side_by_side))
        return Done()

    monkeypatch.setattr(command, "_start", start)
    in_turn = replace(ONE, components=(1, 4, 8), in_turn=True)
    command.train(in_turn, [1, 4, 8], tmp_path, workers=2)
    assert started == [(1, 1), "done", (4, 2), (8, 2), "done", "done"]
    started.clear()
    command.train(replace(in_turn, in_turn=False), [1, 4, 8], tmp_path, workers=2)
    assert started == [(1, 2), (4, 2), "done", "done", (8, 1), "done"]


@pytest.mark.parametrize("corpus", [one for scale in SCALES.values() for one in scale])
def test_scales(corpus: Corpus, tmp_path: Path) -> None:
    assert set(corpus.tables) == set(TABLES)
    jobs = [job for job in command.jobs_of(corpus.tables, corpus.grid)]
    assert {job.components for job in jobs} <= {1, 4, 8}
    for M in corpus.components:
        words = corpus.train_command(tmp_path, M)
        assert f"model.num_components={M}" in words and not any("{" in word for word in words)
        starts = [word for word in words if word.startswith("init.from_checkpoint=")]
        first = corpus.run_folder(tmp_path, 1) / "checkpoints" / "best.ckpt"
        wanted = [f"init.from_checkpoint={first}"] if corpus.in_turn and M > 1 else []
        assert starts == wanted
