"""A latent structure costs one file and its YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lkf_plugin.latents.chain import Chain, ChainPotentials
from lkf_plugin.latents.structure import Structure, build_structure
from tests.extension.conftest import LIMIT

FILES = ["my_latents.py", "conf/model/lkf-runs.yaml"]
SMALL = ("model.block_components=2", "model.num_components=2")


def test_the_example_trains_and_samples(example, main, tmp_path: Path, capfd) -> None:
    runs = example("A latent structure")
    assert runs.files == FILES and runs.lines <= LIMIT
    assert main(*runs.arguments, *SMALL) == 0, capfd.readouterr().err
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "latent: my_latents.runs" in saved and "run_blocks: 8" in saved
    arguments = (*runs.arguments, *SMALL, "mode=sample_eval", "decode=best_of_m")
    assert main(*arguments) == 0, capfd.readouterr().err
    [record] = (tmp_path / "run" / "records").glob("*lkf-runs*.json")
    assert json.loads(record.read_text())["subject"]["method"] == "lkf-runs"
    assert main(*runs.arguments, *SMALL, "model.run_blocks=4") == 2
    assert "model.run_blocks was 8" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("model.run_blocks=0", "model.run_blocks=0 must be a whole number of at least 1."),
        ("model.latent=chain", "model.run_blocks=8 is not read by the latent-kernel network"),
    ],
)
def test_its_settings_are_checked(example, main, capfd, wrong: str, sentence: str) -> None:
    runs = example("A latent structure")
    if wrong.startswith("model.latent"):  # registers it, as a run before it in a sweep does
        assert main(*runs.arguments, "model.run_blocks=0") == 2
    assert main(*runs.arguments, wrong) == 2
    err = capfd.readouterr().err
    assert sentence in err and "Traceback" not in err


def of_settings(**more: Any) -> Structure[Any]:
    sizes = {"num_components": 2, "block_components": 3, "block_length": 1, "sticky": 1.0}
    return build_structure({"latent": "my_latents.runs", **sizes, **more})


def potentials(runs: Structure[Any], length: int, seed: int = 0) -> ChainPotentials:
    network = runs.network(5).double()
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        return network(torch.randn(4, length, 5, generator=generator, dtype=torch.float64))


def test_a_run_knows_nothing_of_the_one_before(example) -> None:
    """Per sequence latent, Psi is the product of chains over the runs."""
    example("A latent structure")
    runs, length = of_settings(run_blocks=3), 8
    p = potentials(runs, length)
    ell_BGM = torch.randn(4, length, 6, dtype=torch.float64)
    whole_BK = torch.zeros(4, 2, dtype=torch.float64)
    for start in range(0, length, 3):
        stop = min(start + 3, length)
        for k in range(2):
            logw_B1 = torch.zeros(4, 1, dtype=torch.float64)
            moves = p.logT_BKHmm[:, k : k + 1, start : stop - 1]
            part = ChainPotentials(logw_B1, p.loga_BKm[:, k : k + 1], moves)
            ell = ell_BGM[:, start:stop, 3 * k : 3 * k + 3]
            whole_BK[:, k] += Chain(1, 3, 1).log_psi(part, ell)
    expected_B = torch.logsumexp(p.logw_BK + whole_BK, -1)
    torch.testing.assert_close(runs.log_psi(p, ell_BGM), expected_B)


@pytest.mark.parametrize("tied", [False, True])
def test_the_m_step_of_counts_of_a_law_is_that_law(example, tied: bool) -> None:
    """At its own expected counts a law is the likeliest; tied, one whose runs are alike."""
    example("A latent structure")
    runs = of_settings(run_blocks=2)
    p = potentials(runs, 6)
    p = ChainPotentials(*(part[:1] for part in p))
    if tied:
        inside = p.logT_BKHmm[:, :, :1].expand_as(p.logT_BKHmm)
        first = p.loga_BKm[:, :, None, None].expand_as(inside)
        begins = torch.tensor([False, True, False, True, False])[:, None, None]
        p = p._replace(logT_BKHmm=torch.where(begins, first, inside))
    for own, back in zip(p, runs.maximize(runs.counts(p), tied), strict=True):
        torch.testing.assert_close(back, own)
