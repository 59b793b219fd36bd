"""Sample g is a function of (weights, settings, seed, g): from every entry, in any batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor

from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.sample import BLOCK, sample, sample_numbers, share
from lkf_plugin.evaluate.command import main as evaluate
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.modes.sample_eval import sample_eval
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.load import LoadedRun, load_run
from lkf_plugin.train.seeding import derive_seed
from tests.evaluate.small_run import TINY, train
from tests.methods.conftest import TINY as PLAIN

J, SEED, COUNT = 3, 5, 6
PLACES = ("trainer.accelerator=cpu", "trainer.devices=1", "trainer.precision=32-true")
# name -> (how it is trained, how it is decoded)
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "commit": ((*TINY, "model.num_components=3"), "commit"),
    "best_of_m": ((*TINY, "model.num_components=3"), "best_of_m"),
    "M1": ((*TINY, "model.num_components=1"), "auto"),
    "sedd": ((*PLAIN, "method=sedd"), "auto"),
    "sedd, best of n": ((*PLAIN, "method=sedd"), "best_of_n"),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run folder of a case."""
    root = tmp_path_factory.mktemp("runs")

    def folder(case: str) -> Path:
        words = CASES[case][0]
        path = root / f"{abs(hash(words))}"
        if not path.is_dir():
            train(path, root / "cache", *words)
        return path

    return folder


def config_of(folder: Path, case: str, batch: int, batches: int) -> Any:
    """What main.py composes for mode=sample_eval of a run."""
    from hydra import compose, initialize_config_dir

    from lkf_plugin.cli import config_folder
    from lkf_plugin.config import register_resolvers

    words, decode = CASES[case]
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose(
            "config",
            overrides=[
                *words, *PLACES, "mode=sample_eval", f"decode={decode}", f"seed={SEED}",
                f"sampling.steps={J}", f"loader.eval_batch_size={batch}",
                f"sampling.num_sample_batches={batches}", f"run_dir={folder}",
                f"data.cache_dir={folder.parent / 'cache'}",
            ],
        )  # fmt: skip


def by_main(folder: Path, case: str, batch: int, batches: int) -> Tensor:
    """Ids that mode=sample_eval leaves."""
    sample_eval(config_of(folder, case, batch, batches), "builtin")
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return torch.tensor([json.loads(line)["ids"] for line in lines])


def settings_of(case: str) -> dict[str, Any]:
    decode = CASES[case][1]
    return {"policy": "auto"} if decode == "auto" else policy_settings(decode)


@pytest.mark.parametrize("case", CASES)
def test_every_entry_and_batch_size_gives_the_same_samples(
    run_of: Callable[[str], Path], case: str
) -> None:
    folder = run_of(case)
    run = load_run(folder)
    settings = settings_of(case)
    whole = run.sample(settings, J, 8, SEED, batch_size=8).x_GL
    for batch in (1, 3):
        assert torch.equal(run.sample(settings, J, 7, SEED, batch_size=batch).x_GL, whole[:7])
    for batch, batches in ((1, 6), (3, 2), (8, 1)):
        ids = by_main(folder, case, batch, batches)
        assert torch.equal(ids, whole[: len(ids)]) and len(ids) == batch * batches
    assert not torch.equal(run.sample(settings, J, 8, SEED + 1).x_GL, whole)
    assert whole.unique(dim=0).shape[0] > 1
    for world in (2, 3):
        parts = [in_process(run, settings, 8, rank, world) for rank in range(world)]
        assert torch.equal(torch.cat([part.x_GL for part in parts]), whole)


def in_process(run: LoadedRun, settings: Any, count: int, rank: int, world: int) -> Decoded:
    start_L = run.module._sample_prior(1, run.config.model.length)[0]
    numbers = share(count, rank, world)
    return sample_numbers(run.module, start_L, settings, SEED, numbers, J, 2)


def test_the_evaluator_measures_these_samples(
    run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """scripts/evaluate.py and main.py leave records of one identity and with the same figures."""
    folder = run_of("best_of_m")
    by_main(folder, "best_of_m", 3, 2)
    words = ["--policy", "best_of_m", "--steps", str(J), "--samples", str(COUNT), "--plain"]
    words += ["--seed", str(SEED), "--self-bleu", "0", "--out", str(tmp_path)]
    assert evaluate([str(folder), *words]) == 0
    (theirs,) = tmp_path.glob("*.best_of_m.*.json")
    ours = folder / "records" / theirs.name
    one, other = (json.loads(path.read_text()) for path in (ours, theirs))
    assert one["digest"] == other["digest"] and one["metrics"] == other["metrics"]


def test_validation_draws_them_too(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Texts of a validation are those of sample_eval with the weights of its step."""
    words = (*TINY[:-1], "trainer.limit_val_batches=1", "model.num_components=3", f"seed={SEED}",
             "decode=commit", f"sampling.steps={J}", "eval.generate_samples=true",
             "loader.eval_batch_size=3", "sampling.num_sample_log=6")  # fmt: skip
    folder = train(tmp_path / "run", tmp_path / "cache", *words)
    texts = (folder / "samples" / "step-4.txt").read_text().split("\n\n")
    drawn = load_run(folder).sample(policy_settings("commit"), J, COUNT, SEED)
    tokenizer = load_run(folder).prepared.tokenizer
    expected = [tokenizer.decode(ids, skip_special_tokens=True) for ids in drawn.x_GL.tolist()]
    assert [text.strip() for text in texts] == [text.strip() for text in expected]


def test_an_own_sampler_is_mdlm_s_batch_bit_for_bit(run_of: Callable[[str], Path]) -> None:
    """A block is what MDLM's sampler draws for as many samples from the block's seed."""
    module = load_run(run_of("M1")).module
    start_GL = module._sample_prior(BLOCK, 32)
    number_G = torch.arange(BLOCK, 2 * BLOCK)
    drawn = sample(module, start_GL, {"policy": "mdlm"}, mix(SEED, number_G), J)
    torch.manual_seed(int(mix(*mix(SEED, number_G).unbind())))
    assert torch.equal(module.reverse(start_GL, J, module.config.sampling.eps), drawn.x_GL)
    block = sample_numbers(module, start_GL[0], {"policy": "mdlm"}, SEED, range(9, 11), J)
    assert torch.equal(block.x_GL, drawn.x_GL[1:3])


def test_drawing_leaves_the_generators_as_they_were(run_of: Callable[[str], Path]) -> None:
    run = load_run(run_of("M1"))
    torch.manual_seed(derive_seed(1, "x"))
    before = torch.get_rng_state()
    run.sample({"policy": "auto"}, J, 3, SEED)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("count", "world"), [(8, 1), (8, 2), (7, 3), (2, 4), (0, 2)])
def test_shares_are_consecutive_and_whole(count: int, world: int) -> None:
    shares = [share(count, rank, world) for rank in range(world)]
    assert [g for one in shares for g in one] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def work(rank: int, folder: str, case: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
                      RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))  # fmt: skip
    sample_eval(config_of(Path(folder), case, 3, 2), "builtin")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_draw_what_one_draws(run_of: Callable[[str], Path], case: str) -> None:
    folder = run_of(case)
    alone = by_main(folder, case, 3, 2)
    (folder / "samples.jsonl").unlink()
    records = metrics_in(folder)
    port = 20_000 + os.getpid() % 20_000
    mp.spawn(work, (str(folder), case, port), nprocs=2)
    lines = (folder / "samples.jsonl").read_text().splitlines()
    assert torch.equal(torch.tensor([json.loads(line)["ids"] for line in lines]), alone)
    assert metrics_in(folder) == records


def metrics_in(folder: Path) -> dict[str, Any]:
    """Digest of each record of a run -> what was measured."""
    return {one.digest: one.metrics for one in read_records(folder / "records")}
