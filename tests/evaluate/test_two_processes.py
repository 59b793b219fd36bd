"""Two processes (torchrun, gloo) measure what one measures, and end together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lkf_plugin.evaluate.command import main
from tests.evaluate.small_run import train
from tests.runs.test_two_processes import environment

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "evaluate.py"
WORDS = "the cat sat on a mat and the dog ran to the old red barn while rain fell all night"
TEXT = (
    "experiment=own-text", "data.min_characters=1000", "data.vocab_size=300",
    "model.num_components=3", "loss=mixture", "model.length=16", "model.hidden_size=16",
    "model.cond_dim=8", "model.n_blocks=2", "model.latent_blocks=1", "model.n_heads=2",
    "loader.global_batch_size=4", "loader.eval_global_batch_size=4", "trainer.max_steps=2",
    "lr_scheduler.warmup_steps=1", "lr_scheduler.total_steps=2", "trainer.val_check_interval=2",
    "trainer.limit_val_batches=1",
)  # fmt: skip
# seven samples in batches of two, nine texts in the judge's batches of eight: uneven shares
ASKED = ("--policy", "best_of_m", "--policy", "commit", "--steps", "1", "3", "--samples", "7",
         "--batch-size", "2", "--sequences", "9", "--self-bleu", "0")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture on text, two steps old."""
    root = tmp_path_factory.mktemp("text")
    path = root / "my.txt"
    lines = (f"{WORDS} {number * number}" for number in range(300))
    path.write_text("\n".join(lines), encoding="utf-8")
    return train(root / "run", root / "cache", *TEXT, f"data.path={path}")


def two(folder: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    """Two processes as a launcher starts them, without one that would end the others."""
    port = str(20_000 + os.getpid() % 20_000)
    named = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments], cwd=folder, text=True,
            env=environment(folder) | named | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]  # fmt: skip


def ends(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Status, output and complaint of each."""
    told = [process.communicate(timeout=300) for process in processes]
    return [(one.returncode, *words) for one, words in zip(processes, told, strict=True)]


@pytest.mark.slow
def test_the_records_are_the_same_bytes(run: Path, judge_folder: Path, tmp_path: Path) -> None:
    """Samples with their attribution under a judge, ends, likelihood, drops, information."""
    given = (str(run), *ASKED, "--judge", str(judge_folder))
    assert main([*given, "--out", str(tmp_path / "one"), "--threads", "1"]) == 0
    both = two(tmp_path, *given, "--out", str(tmp_path / "two"), "--threads", "1")
    (status, said, complained), (other, silent, _) = ends(both)
    assert status == other == 0, complained
    assert silent == "" and said.count("gen_ppl[tiny-gpt2]") == 6
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 4 + 2 + 3
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == names
    for name in names:
        ours, theirs = ((tmp_path / which / name).read_bytes() for which in ("one", "two"))
        assert ours == theirs, name


@pytest.mark.slow
def test_a_mistake_is_told_once(run: Path, tmp_path: Path) -> None:
    told = ends(two(tmp_path, str(run), "--policy", "halving", "luck=1"))
    assert [status for status, *_ in told] == [2, 2]
    sentences = "".join(complained for *_, complained in told)
    assert sentences.count("error:") == 1 and "halving has no luck" in sentences
    assert "Traceback" not in sentences


@pytest.mark.slow
def test_a_killed_process_ends_the_other_in_a_sentence(run: Path, tmp_path: Path) -> None:
    first, second = two(tmp_path, str(run), *ASKED, "--out", str(tmp_path / "out"))
    assert first.stdout is not None
    while "loaded step" not in first.stdout.readline():
        assert first.poll() is None
    second.kill()  # without a word
    second.communicate()
    _, complained = first.communicate(timeout=500)
    assert first.returncode == 1
    assert "One of the 2 processes has ended" in complained and "Traceback" not in complained
