"""Four tiny rows on a text of forty lines, trained by the real command, and a random judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import runner
from experiments.compare.methods import Row
from experiments.compare.training import run_of
from lkf_plugin.judge.judge import Judge
from tests.data.conftest import sentence
from tests.evaluate.conftest import save
from tests.evaluate.small_run import train
from tests.experiments.test_runner import Ended

LENGTH, SEED, STEPS = 12, 1, 2
TINY = (
    "data=text",
    "data.vocab_size=300",
    "data.document=line",
    "data.layout=windows",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    f"model.length={LENGTH}",
    "loader.global_batch_size=4",
    "loader.eval_global_batch_size=4",
    "loader.num_workers=0",
    "data.drop_digit_windows=false",
    "trainer.val_check_interval=2",
    "trainer.limit_val_batches=1",
)


@pytest.fixture(scope="session")
def tiny_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """AR, DUO and both LKF rows, as State of the Union has them."""
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(sentence(i, words=30) for i in range(40)) + "\n")
    plain = ("experiment=sotu_baseline", *TINY, f"data.path={path}")
    null = ("method.curriculum.gamma_min=null", "method.curriculum.gamma_max=null")
    return {
        "ar": Row(("experiment=sotu_ar", *plain[1:])),
        "duo": Row((*plain, "method=duo", *null)),
        "lkf-M1": Row(("experiment=sotu", *plain[1:])),
        "lkf-M8": Row(("experiment=sotu-mixture", *plain[1:]), start="lkf-M1"),
    }


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(str(save(tmp_path_factory.mktemp("judge") / "Tiny-GPT2")), dtype="float32")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_rows: dict[str, Row]) -> Path:
    """A folder with every run, two steps old; trained in this process, which is quicker."""
    out = tmp_path_factory.mktemp("compare")

    def train_here(run: runner.Run, threads: int) -> Ended:
        train(run.folder, out / "cache", *run.command[1:-1])
        return Ended()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_begin", train_here)
        patch.setattr(runner, "POLL", 0.0)
        rows = ("lkf-M8", "ar", "duo")
        runner.train([run_of(out, tiny_rows, name, SEED, STEPS) for name in rows])
    return out
