"""What best-of-M is worth on AgreeText, on models of the demo's recipe (slow: they are trained)."""

from __future__ import annotations

import pytest

from lkf_plugin.corpora import agreetext
from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.evaluate.cells import decode_cell
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.runs.load import LoadedRun, load_run
from tests.evaluate.small_run import train

pytestmark = pytest.mark.slow
SAMPLES = 96


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, LoadedRun]:
    """M = 1 and M = 8 by the demo's recipe; at 450 steps the mixture is not there yet."""
    folder = tmp_path_factory.mktemp("agreetext")
    runs = {}
    for M in (1, 8):
        words = ("experiment=demo", f"model.num_components={M}")
        quick = ("trainer.limit_val_batches=0", "trainer.val_check_interval=700")
        runs[M] = load_run(train(folder / f"M{M}", folder / "cache", *words, *quick))
    return runs


def valid(run: LoadedRun, J: int, policy: str, **changes: object) -> float:
    samples = decode_cell(run, policy_settings(policy, **changes), J, SAMPLES, seed=1)
    return agreetext.valid(samples.ids_SL).double().mean().item()


def test_two_steps_need_the_mixture(trained: dict[int, LoadedRun]) -> None:
    assert valid(trained[8], 2, "best_of_m") > 0.9
    assert valid(trained[1], 2, "best_of_n") < 0.15


def test_single_rollouts_are_ordered(trained: dict[int, LoadedRun]) -> None:
    """The calibration finds better components than the router does, at the same J calls."""
    plain, learned = valid(trained[8], 2, "commit"), valid(trained[8], 2, "calibrated")
    assert learned > plain + 0.1
    assert valid(trained[8], 2, "best_of_m") >= learned


def test_every_policy_speaks(trained: dict[int, LoadedRun]) -> None:
    for name in POLICIES:
        changes = {"num_candidates": 2} if name == "best_of_n" else {}
        assert 0 <= valid(trained[8], 4, name, **changes) <= 1
