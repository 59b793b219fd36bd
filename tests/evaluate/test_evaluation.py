"""Records of a real run: what they hold, that they repeat, and that kept cells are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lkf_plugin.corruption import nelbo_weight
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.command import main, open_run
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.latent import latent_information
from lkf_plugin.evaluate.likelihood import likelihood
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.evaluate.reference_text import shuffled_words
from lkf_plugin.objective.components import HeadSettings, component_scores
from lkf_plugin.records.store import write_record
from lkf_plugin.runs.load import LoadedRun, load_run
from tests.evaluate.small_run import TINY, train


def evaluation(run: LoadedRun, folder: Path, samples: int = 6) -> Evaluation:
    quality = quality_for(run.config, run.prepared.tokenizer, None, self_bleu_subset=0)
    return Evaluation(run, quality, folder, samples, seed=1, batch_size=4)


def test_a_record_made_twice_is_the_same_bytes(tiny_mixture: LoadedRun, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        made = evaluation(tiny_mixture, tmp_path / folder)
        made.policy(policy_settings("best_of_m"), 2, attribute=True)
        made.policy(policy_settings("probe", probe_step=1), 2)
        made.likelihood(8, draws=2)
        made.information(2, trajectories=2, draws=64)
        made.ends()
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 6
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_what_a_record_holds(tiny_mixture: LoadedRun, tmp_path: Path) -> None:
    record = evaluation(tiny_mixture, tmp_path).policy(policy_settings("best_of_m"), 2, True)
    assert record.name == "agreetext.M3.best_of_m.nelbo.J2"
    assert record.value("calls") == 3 * (2 + 4) and record.samples == 6 and record.setting("ema")
    assert {"valid", "entropy", "pooled_entropy", "distinct_2", "share_entropy"} <= set(
        record.metrics
    )
    assert {f"valid.solo[{k}]" for k in range(3)} <= set(record.metrics)
    assert record.metrics["entropy_ceiling"].value == pytest.approx(math.log(32))
    assert record.setting("decode.score_draws") == 4 and record.labels["trained_steps"] == 4


def test_entropy_of_another_model_is_read_and_what_differs_is_named(
    tiny_mixture: LoadedRun, tmp_path: Path
) -> None:
    made = evaluation(tiny_mixture, tmp_path)
    record = made.policy(policy_settings("commit"), 2)
    entropy = record.metrics["pooled_entropy"].value
    assert made.entropy_of(3, "commit", 2) == entropy
    assert made.entropy_of(3, "commit", 4) is None
    fewer = evaluation(tiny_mixture, tmp_path, samples=5)
    with pytest.raises(UserError, match=f"{record.name} has settings.samples=6 and this-run has"):
        fewer.entropy_of(3, "commit", 2)


def test_kept_records_are_not_made_again(tiny_mixture: LoadedRun, tmp_path: Path) -> None:
    made = evaluation(tiny_mixture, tmp_path)
    settings = policy_settings("commit")
    record = made.policy(settings, 2)
    marked = replace(record, code="marked")
    write_record(marked, tmp_path)
    assert made.policy(settings, 2).code == "marked"
    made.batch_size = 5  # changes no number
    assert made.policy(settings, 2).code == "marked"
    made.reuse = False
    assert made.policy(settings, 2).code != "marked"


def test_what_a_figure_depends_on_makes_the_cell_anew(
    tiny_mixture: LoadedRun, tmp_path: Path
) -> None:
    made = evaluation(tiny_mixture, tmp_path)
    settings = policy_settings("best_of_m")
    cells = [
        made.policy(settings, 2),
        made.policy(settings, 2, attribute=True),
        made.policy({**settings, "min_prior": 0.0}, 2),
        made.policy({**settings, "selector": "centred"}, 2),
        made.policy({**settings, "selector": "centred", "calibration_samples": 2}, 2),
        made.policy(settings, 3),
        evaluation(tiny_mixture, tmp_path, 7).policy(settings, 2),
        replace(made, seed=2).policy(settings, 2),
        made.likelihood(8, draws=1),
        made.likelihood(9, draws=1),
        made.likelihood(8, draws=2),
        made.information(2, trajectories=1, draws=16),
        made.information(2, trajectories=1, draws=17),
        *made.ends(),
    ]
    assert len({record.digest for record in cells}) == len(cells)
    assert {path.name for path in tmp_path.iterdir()} == {one.file_name for one in cells}


def test_nelbo_against_the_validation_formula(tiny_mixture: LoadedRun) -> None:
    """Many stratified draws against one-level quadrature over tau with fresh masks."""
    found = likelihood(tiny_mixture, 16, draws=32, seed=0)
    module = tiny_mixture.module
    assert tiny_mixture.prepared.valid is not None
    x_BL = torch.as_tensor(tiny_mixture.prepared.valid[:16]["input_ids"])
    torch.manual_seed(0)
    total, mixture, reps = 0.0, 0.0, 64
    for i in range(reps):
        tau_B = torch.full((16,), 1e-3 + (1 - 1e-3) * (i + 0.5) / reps)
        sigma_B, dsigma_B = module.noise(tau_B)
        counted_BL = torch.rand(x_BL.shape) < 1 - torch.exp(-sigma_B)[:, None]
        xt_BL = torch.where(counted_BL, module.mask_index, x_BL)
        with torch.no_grad():
            (logw,), logp = component_scores(
                module.backbone, xt_BL, x_BL, counted_BL, module._process_sigma(sigma_B),
                HeadSettings("full"),
            )  # fmt: skip
        weight = nelbo_weight(sigma_B, dsigma_B)
        marginal = torch.logsumexp(logw[:, :, None] + logp, 1) * counted_BL
        total -= (weight * marginal.sum(-1)).sum().item() / reps
        mixture -= (weight * torch.logsumexp(logw + logp.sum(-1), 1)).sum().item() / reps
    se = found["nelbo"].se
    assert se is not None
    assert found["nelbo"].value == pytest.approx(total / x_BL.numel(), abs=0.15)
    assert found["mixture_objective"].value == pytest.approx(mixture / x_BL.numel(), abs=0.15)
    assert found["elbo_ppl"].value == pytest.approx(math.exp(found["nelbo"].value))
    assert found["elbo_ppl_integral"].value == pytest.approx(math.exp(0.999 * found["nelbo"].value))
    assert not any("ppl" in name for name in found if "mixture" in name)
    assert all(0 <= found[f"gamma_entropy[{i}]"].value <= math.log(3) for i in range(10))


def test_information_lies_under_its_ceilings(tiny_mixture: LoadedRun) -> None:
    found = latent_information(tiny_mixture, num_steps=4, trajectories=3, draws=256)
    assert 0 <= found["information"].value <= found["router_entropy"].value + 1e-9
    assert found["router_entropy"].value <= math.log(3) + 1e-9
    assert found["total_correlation"].value <= 31 * math.log(3)
    assert {f"information.step[{j}]" for j in (1, 2, 3)} <= set(found)


def test_ends_of_the_scale(tiny_mixture: LoadedRun, tmp_path: Path) -> None:
    real, shuffled = evaluation(tiny_mixture, tmp_path).ends()
    assert real.metrics["valid"].value == 1.0 and shuffled.metrics["valid"].value == 0.0
    words = shuffled_words(["a b c d e f g", "x"], 0)
    assert sorted(words[0].split()) == list("abcdefg") and words[1] == "x"
    assert words == shuffled_words(["a b c d e f g", "x"], 0)


def test_a_judge_for_agreetext_is_refused(tiny_mixture: LoadedRun) -> None:
    with pytest.raises(UserError, match="judged by its grammar"):
        quality_for(tiny_mixture.config, None, "smollm2", self_bleu_subset=0)


def test_the_command(
    tiny_mixture: LoadedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_mixture.checkpoint.parent.parent
    options = ["--steps", "1", "--samples", "3", "--self-bleu", "0", "--out", str(tmp_path)]
    words = ["--policy", "solo", "component=all", "--policy", "best_of_m", "selector=evidence"]
    assert main([str(tiny_mixture.checkpoint), *options, *words, "--plain"]) == 0
    names = {path.stem for path in tmp_path.iterdir()}
    assert {name.rpartition("-")[0] for name in names} == {
        *(f"agreetext.M3.solo.k{k}.J1" for k in range(3)),
        "agreetext.M3.best_of_m.evidence.J1",
    }
    assert main([str(folder), *options, "--policy", "halving", "luck=1"]) == 2
    assert "halving has no luck" in capsys.readouterr().err
    with pytest.raises(UserError, match="neither a run folder"):
        open_run(tmp_path)


@pytest.mark.parametrize("latent", ["tree", "chain"])
def test_latents_per_block_are_measured_too(tmp_path, latent):
    words = (f"model.latent={latent}", "model.num_components=2", "model.block_components=2")
    folder = train(tmp_path / latent, tmp_path / "cache", *TINY, *words, "model.block_length=4")
    run = load_run(folder)
    structure = run.module.backbone.structure
    found = latent_information(run, num_steps=3, trajectories=2, draws=64)
    capacity = structure.capacity(int(run.config.model.length))
    assert found["router_entropy"].value <= capacity + 1e-6
    assert found["information"].value <= capacity and found["components_alive"].value == 4
    assert {f"information.step[{j}]" for j in (1, 2)} <= set(found)
    nats = likelihood(run, 8, draws=2, progress=False)
    assert nats["nelbo"].value > 0 and nats["mixture_objective"].value > 0
