"""What a component is worth, against networks whose router never takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.dropped import drop_one
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.runs.load import LoadedRun, load_run
from tests.evaluate.small_run import TINY, tiny_run, train

NEVER = -1e9  # a logit


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """One chain of three states over positions, behind attention."""
    words = (
        "model.latent=chain", "model.num_components=1", "model.block_components=3",
        "model.block_length=1", "model.latent_site=after_attention", "model.sticky=0",
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("runs")
    return load_run(train(folder / "chain", folder / "cache", *TINY, *words))


def worth_is_the_difference(found: dict, steps: int, kind: str) -> None:
    name, level = f"without{kind}", kind.replace("_sequence", ".sequence")
    gap = found[f"nll@{steps}.{name}"].value - found[f"nll@{steps}"].value
    assert found[f"worth@{steps}{level}"].value == pytest.approx(gap)


def test_a_sequence_latent(tiny_mixture: LoadedRun) -> None:
    found = drop_one(tiny_mixture, [1, 3], 12, seed=5)
    assert len(found) == 2 * (1 + 2 * 3)
    plain = few_step(tiny_mixture, [1, 3], 12, 5, progress=False).estimates
    bias = tiny_mixture.module.backbone.router.out.bias
    for k in range(3):
        kept = bias.detach().clone()
        with torch.no_grad():
            bias[k] = NEVER
        gone = few_step(tiny_mixture, [1, 3], 12, 5, progress=False).estimates
        with torch.no_grad():
            bias.copy_(kept)
        for steps in (1, 3):
            assert found[f"nll@{steps}"] == plain[f"nll@{steps}"]
            without = found[f"nll@{steps}.without[{k}]"]
            assert without.value == pytest.approx(gone[f"nll@{steps}"].value, rel=1e-6)
            worth_is_the_difference(found, steps, f"[{k}]")


def test_a_state_of_a_chain(chain: LoadedRun) -> None:
    found = drop_one(chain, [2], 12, seed=5)
    router = chain.module.backbone.router
    for j in range(3):
        kept = [layer.bias.detach().clone() for layer in (router.start_out, router.move_out)]
        with torch.no_grad():
            router.start_out.bias[j] = NEVER
            router.move_out.bias.view(3, 3)[:, j] = NEVER
        gone = few_step(chain, [2], 12, 5, progress=False).estimates["nll@2"]
        with torch.no_grad():
            router.start_out.bias.copy_(kept[0])
            router.move_out.bias.copy_(kept[1])
        assert found[f"nll@2.without[{j}]"].value == pytest.approx(gone.value, rel=1e-6)
        worth_is_the_difference(found, 2, f"[{j}]")
    assert found["worth@2[0]"].se is not None


def test_a_tree_loses_both_levels(tmp_path: Path) -> None:
    words = ("model.latent=tree", "model.num_components=2", "model.block_components=2")
    folder = train(tmp_path / "tree", tmp_path / "cache", *TINY, *words, "model.block_length=8")
    found = drop_one(load_run(folder), [1], 8)
    assert {"nll@1.without[3]", "nll@1.without_sequence[1]", "worth@1.sequence[0]"} <= set(found)
    worth_is_the_difference(found, 1, "_sequence[1]")


def test_one_component_has_nothing_to_lose(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="with one component"):
        drop_one(tiny_run(tmp_path, 1), [1], 4)
