"""The command behind the tables: trains what is missing, measures what has no record."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from experiments import runner
from experiments.paper import reproduce as command
from experiments.paper.plan import TABLES
from experiments.paper.scales import SCALES, Corpus
from experiments.recipes import Recipe
from lkf_plugin.cli import config_folder
from lkf_plugin.config import register_resolvers
from lkf_plugin.errors import UserError
from lkf_plugin.records.store import read_record
from lkf_plugin.runs.settings import flatten, plain
from tests.evaluate.small_run import HERE, TINY

LATENT = (*TINY, *HERE)
ONE = Corpus(
    name="agreetext",
    recipes={"lkf-M1": Recipe((*LATENT, "model.num_components=1"))},
    tables=("main",),
    grid=(1, 2),
    samples=4,
    sequences=8,
    judge=None,
    judged_chains=None,
    self_bleu=0,
    batch_size=4,
)


def but(corpus: Corpus, *overrides: str) -> Corpus:
    """The same with other settings of every training."""
    recipes = {name: recipe.but(*overrides) for name, recipe in corpus.recipes.items()}
    return replace(corpus, recipes=recipes)


def test_a_row_is_trained_and_measured_once(tmp_path: Path) -> None:
    corpus = but(ONE, f"data.cache_dir={tmp_path / 'cache'}")
    folder = command.reproduce([corpus], ["main"], tmp_path, "M1.commit", workers=1)
    files = sorted((folder / "agreetext").glob("*.json"))
    assert [path.stem.rpartition("-")[0].split(".")[1:] for path in files] == [
        ["M1", "commit", "J1"],
        ["M1", "commit", "J2"],
    ]
    assert read_record(files[0]).samples == 4
    checkpoints = corpus.run(tmp_path, "M1").folder / "checkpoints"
    stamps = {path: path.stat().st_mtime_ns for path in [*files, *checkpoints.iterdir()]}
    command.reproduce([corpus], ["main"], tmp_path, "M1.commit", workers=1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_mistakes_are_told_before_any_training(tmp_path: Path, monkeypatch) -> None:
    def start(*_):
        raise AssertionError("nothing may be trained")

    monkeypatch.setattr(runner, "_begin", start)
    with pytest.raises(UserError, match="no cell of main has M1.nothing"):
        command.reproduce([ONE], ["main"], tmp_path, "M1.nothing", workers=1)
    deaf = replace(ONE, judge=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        command.reproduce([deaf], ["main"], tmp_path, None, workers=1)


@pytest.mark.parametrize("row", [None, "M1.commit.J2", "best_of"])
def test_what_is_printed_is_what_is_run(row, tmp_path: Path, monkeypatch, capsys) -> None:
    recipes = {**ONE.recipes, "lkf-M4": Recipe((*LATENT, "model.num_components=4"))}
    pair = replace(ONE, recipes=recipes, tables=("main", "bestofn"), seeds=(1, 2))
    scripts = Path(__file__).parents[3] / "scripts"
    show = runpy.run_path(str(scripts / "reproduce.py"))["show"]
    run: dict[str, list] = {}
    monkeypatch.setattr(command, "train", lambda runs, *_: run.update(runs=runs))
    monkeypatch.setattr(command, "measure", lambda corpus, jobs, *_: run.update(jobs=jobs))
    command.reproduce([pair], TABLES, tmp_path, row, workers=1)
    show([pair], TABLES, tmp_path, row)
    lines = capsys.readouterr().out.splitlines()
    trained = [line for line in lines if line.startswith("python ")]
    cells = [line.split()[1].rstrip(":") for line in lines if line.startswith("# ")]
    assert trained == [" ".join(["python", *one.command]) for one in run["runs"]]
    assert cells == [f"agreetext.{command.job_name(job)}" for job in run["jobs"]]
    assert not any(".M8." in cell for cell in cells)  # a model that is not in this plan
    with pytest.raises(UserError, match="no cell"):
        show([pair], TABLES, tmp_path, "M8")


def test_a_failed_training_shows_its_last_line(tmp_path: Path) -> None:
    broken = but(ONE, "model.n_heads=3")
    with pytest.raises(
        UserError, match=r"agreetext M1 failed \(.*n_heads=3.*\): see .*train-M1.log"
    ):
        command.reproduce([broken], ["main"], tmp_path, None, workers=1)


def test_models_that_need_another_wait_for_it(tmp_path: Path) -> None:
    sotu = {corpus.name: corpus for corpus in SCALES["tiny"]}["sotu"]
    assert sotu.run(tmp_path, "M8", 2).start == sotu.run(tmp_path, "M1", 2)
    assert sotu.run(tmp_path, "M1").start is None
    student = sotu.run(tmp_path, "di4c-r2")
    assert student.teacher == sotu.run(tmp_path, "sdtt-r1")
    words = student.command
    assert f"method.teacher={sotu.run(tmp_path, 'sdtt-r3').folder}/checkpoints/last.ckpt" in words
    taught = sotu.run(tmp_path, "sdtt-r1").command
    assert f"method.teacher={sotu.run(tmp_path, 'mdlm').best}" in taught


def test_rounds_are_rows_of_one_run(tmp_path: Path) -> None:
    (corpus, _) = SCALES["tiny"]
    assert [m for m in corpus.models if m.startswith("redi")] == ["redi-r1", "redi-r2", "redi-r3"]
    folders = {corpus.run(tmp_path, f"sdtt-r{r}").folder for r in (1, 2, 3)}
    assert folders == {tmp_path / "runs" / "agreetext" / "sdtt"}
    ends = [Path(corpus.checkpoint(tmp_path, f"sdtt-r{r}") or "").name for r in (1, 2, 3)]
    assert ends == ["step-60.ckpt", "step-120.ckpt", "step-180.ckpt"]
    assert corpus.checkpoint(tmp_path, "mdlm") is None
    models, jobs = command.work_of(corpus, ["main"], "sdtt-r")
    assert [(corpus.recipe_of(m), seed) for m, seed in models] == [("sdtt", s) for s in (1, 2, 3)]
    assert {job.name for job in jobs} == {
        f"sdtt-r{r}{end}" for r in (1, 2, 3) for end in ("", "-seed2", "-seed3")
    }


@pytest.mark.parametrize("M", [1, 4, 8])
@pytest.mark.parametrize("corpus", SCALES["paper"], ids=lambda one: one.name)
def test_the_paper_has_one_recipe(corpus: Corpus, M: int, tmp_path: Path) -> None:
    """What reproduce.py --scale paper trains is what experiment=lm1b_lkf says, key by key."""
    ours = composed(*corpus.run(tmp_path, f"M{M}").command[1:])
    words = (f"experiment={corpus.name}_lkf", f"model.num_components={M}", "run_dir=x")
    theirs = composed(*words)
    places = ("run_dir", "checkpointing", "logger", "callbacks")  # hold the run folder
    assert {k: v for k, v in ours.items() if k.split(".")[0] not in places} == {
        k: v for k, v in theirs.items() if k.split(".")[0] not in places
    }
    assert ours["time_conditioning"] is True and ours["data.train"] == corpus.name
    assert (ours["model.length"], ours["loader.global_batch_size"]) == (128, 512)
    assert (ours["trainer.max_steps"], ours["model.num_components"]) == (200_000, M)
    # MDLM's row is MDLM's: constant conditioning, the same data, batch and length
    mdlm = composed(f"experiment={corpus.name}_mdlm")
    assert mdlm["time_conditioning"] is False
    shared = [k for k in mdlm if k.split(".")[0] in ("data", "optim", "lr_scheduler", "training")]
    assert {k: mdlm[k] for k in shared} == {k: ours[k] for k in shared}


def composed(*overrides: str) -> dict[str, Any]:
    """Every key of the configuration, flat."""
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return flatten(plain(compose("config", overrides=list(overrides))))


@pytest.mark.parametrize("corpus", [one for scale in SCALES.values() for one in scale])
def test_scales(corpus: Corpus, tmp_path: Path) -> None:
    assert set(corpus.tables) == set(TABLES)
    models, jobs = command.work_of(corpus, corpus.tables, None)
    assert {job.model for job in jobs} == set(corpus.models)
    for model, seed in models:
        run = corpus.run(tmp_path, model, seed)
        composed(*run.command[1:])  # every word is one that main.py knows
        assert (f"model.num_components={model[1:]}" in run.command) == (model[0] == "M")


@pytest.mark.parametrize("name", ["sdtt", "di4c", "redi", "dcd"])
def test_the_paper_s_rounds_are_kept(name: str, tmp_path: Path) -> None:
    """A checkpoint stands at the end of each round of the protocol on LM1B."""
    (corpus, _) = SCALES["paper"]
    settings = composed(*corpus.run(tmp_path, f"{name}-r1").command[1:])
    rounds, every = settings["method.rounds"], settings["checkpointing.every_n_steps"]
    assert rounds == corpus.recipes[name].rounds == settings["checkpointing.keep_last"]
    assert every * rounds == settings["trainer.max_steps"]
    assert settings["method.teacher"].endswith("last.ckpt" if name == "di4c" else "best.ckpt")
