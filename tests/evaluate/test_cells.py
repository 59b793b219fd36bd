from __future__ import annotations

import pytest
import torch

from experiments.paper.plan import TABLES, jobs_of
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.runs.load import LoadedRun


@pytest.mark.parametrize("name", ["commit", "best_of_m", "halving", "calibrated", "probe"])
def test_batch_size_changes_no_sample(tiny_mixture: LoadedRun, name: str) -> None:
    settings = policy_settings(name)
    whole = tiny_mixture.sample(settings, 4, 7, seed=3, batch_size=7)
    parts = tiny_mixture.sample(settings, 4, 7, seed=3, batch_size=3)
    assert torch.equal(whole.x_GL, parts.x_GL)
    assert torch.equal(whole.component_G, parts.component_G)
    assert whole.steps_calls == pytest.approx(parts.steps_calls)
    assert whole.network_calls == pytest.approx(parts.network_calls)
    fewer = tiny_mixture.sample(settings, 4, 5, seed=3)
    assert torch.equal(whole.x_GL[:5], fewer.x_GL)


def test_row_names() -> None:
    named = {
        "commit": policy_settings("commit"),
        "commit.k2": policy_settings("commit", component=2),
        "best_of_m.nelbo": policy_settings("best_of_m"),
        "best_of_m.evidence.shared": policy_settings(
            "best_of_m", selector="evidence", shared_noise=True
        ),
        "best_of_m.softmax.nelbo": policy_settings("best_of_m", selector="softmax"),
        "best_of_m.nelbo.T2": policy_settings("best_of_m", score_draws=2),
        "best_of_n.n8.nelbo": policy_settings("best_of_n"),
        "halving.shared": policy_settings("halving"),
        "deferred.j0": policy_settings("deferred", switch_step=0),
        "probe.j4.shared": policy_settings("probe"),
        "solo.k3": policy_settings("solo", component=3),
        "solo.k3.n8.nelbo": policy_settings("solo", component=3, num_candidates=8),
        "calibrated.nelbo.theta0.1": policy_settings("calibrated"),
        "commit.temperature0.9": policy_settings("commit", temperature=0.9),
        "best_of_m.nelbo.min_prior0": policy_settings("best_of_m", min_prior=0.0),
        "best_of_m.centred.nelbo.calibration_samples4": policy_settings(
            "best_of_m", selector="centred", calibration_samples=4
        ),
        "calibrated.nelbo.theta0.1.shared_noisetrue": policy_settings(
            "calibrated", shared_noise=True
        ),
        "probe.j4.shared.probe_reportfalse": policy_settings("probe", probe_report=False),
        "mdlm": {"policy": "mdlm", "score_draws": 1},
    }
    assert {row_name(settings): row_name(settings) for settings in named.values()} == {
        name: name for name in named
    }


def test_cells_of_a_plan_have_names_of_their_own() -> None:
    jobs = jobs_of(TABLES, (1, 2, 4))
    names = [(job.model, job.kind, row_name(job.settings()), job.steps)
             for job in jobs if job.policy]  # fmt: skip
    assert len(set(names)) == len(names)


def test_mistakes_are_named(tiny_mixture: LoadedRun) -> None:
    with pytest.raises(UserError, match="policy nonsense is unknown"):
        policy_settings("nonsense")
    with pytest.raises(UserError, match="commit has no selector"):
        policy_settings("commit", selector="nelbo")
    with pytest.raises(UserError, match="policy=luck is unknown: take one of best_of_m"):
        tiny_mixture.sample({"policy": "luck"}, 4, 2, seed=0)


def test_no_policy_waits_longer_than_it_runs() -> None:
    for job in jobs_of(TABLES, (4, 16)):
        settings = job.settings() if job.policy in ("deferred", "probe") else {}
        waits = settings.get("probe_step" if job.policy == "probe" else "switch_step", 0)
        assert waits <= (job.steps or 0)
