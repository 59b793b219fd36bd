"""Policies under latents per block: the law of what they draw, and what they have in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import POLICIES, resolve_policy
from lkf_plugin.decode.scores import mixture_nelbo
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.likelihood.few_step import nats_of_pattern
from lkf_plugin.likelihood.network_steps import NetworkSteps
from tests.decode.test_every_policy import CASES
from tests.objective.test_block_latents import LOSS, STRUCTURES
from tests.tiny import tiny_backbone

MASK, L, V = 3, 4, 3
STRINGS = all_strings(L, V)
every_structure = pytest.mark.parametrize("name", STRUCTURES)


def network(name: str) -> DecodeNetwork:
    backbone = tiny_backbone(4, MASK, length=L, scramble=0.6, **STRUCTURES[name])
    return DecodeNetwork(backbone, LogLinearNoise(), lambda s: s.double())


def request(
    name: str, samples: int = 6, steps: int = 2, seed: int = 1, start: Any = None
) -> DecodeRequest:
    start_L = torch.full((L,), MASK) if start is None else torch.tensor(start)
    engine = RolloutEngine(network(name), steps, eps=0.0)
    return DecodeRequest(
        engine, start_L.repeat(samples, 1), mix(seed, torch.arange(samples)), {}
    )


def run(case: str, *args: Any, **changes: Any) -> Decoded:
    settings = CASES[case]
    return POLICIES[settings["policy"]](request(*args, **changes), settings)


def frequencies(x_GL: torch.Tensor) -> torch.Tensor:
    number_G = (x_GL * V ** torch.arange(L - 1, -1, -1)).sum(-1)
    return torch.bincount(number_G, minlength=V**L).double() / len(x_GL)


def distance(x_GL: torch.Tensor, log_prob_X: torch.Tensor) -> tuple[float, float]:
    """Chi-square statistic of samples per degree of freedom, and a bound on it."""
    expected_X = log_prob_X.exp()
    gap_X = (frequencies(x_GL) - expected_X).square() / expected_X
    return len(x_GL) * gap_X.sum().item() / (len(expected_X) - 1), 1.6


@every_structure
@pytest.mark.parametrize("case", ["commit", "redraw"])
def test_one_step_draws_from_psi(name: str, case: str) -> None:
    model = NetworkSteps(network(name))
    every_XL = torch.ones_like(STRINGS, dtype=torch.bool)
    nats = nats_of_pattern(model, STRINGS, torch.zeros_like(STRINGS), [1.0, 0.0], every_XL)
    assert nats.redrawn_B.neg().exp().sum().item() == pytest.approx(1, abs=1e-12)
    found, bound = distance(run(case, name, 20_000, 1).x_GL, -nats.redrawn_B)
    assert found < bound


@every_structure
def test_two_steps_follow_their_likelihoods(name: str) -> None:
    """Against the exact law: the mean over reveal patterns of the sampler's probability."""
    model = NetworkSteps(network(name))
    every_XL = torch.ones_like(STRINGS, dtype=torch.bool)
    frozen_X = torch.zeros(len(STRINGS), dtype=torch.float64)
    redrawn_X = torch.zeros_like(frozen_X)
    for step_L in all_strings(L, 2):
        step_XL = step_L.expand_as(STRINGS)
        redrawn, frozen = nats_of_pattern(model, STRINGS, step_XL, [1.0, 0.5, 0.0], every_XL)
        frozen_X += frozen.neg().exp() / 2**L
        redrawn_X += redrawn.neg().exp() / 2**L
    for case, law_X in (("commit", frozen_X), ("redraw", redrawn_X)):
        assert law_X.sum().item() == pytest.approx(1, abs=1e-12)
        found, bound = distance(run(case, name, 20_000, 2).x_GL, law_X.log())
        assert found < bound, case


@every_structure
@pytest.mark.parametrize("case", CASES)
def test_every_policy_fills_the_gaps_and_knows_no_batch(name: str, case: str) -> None:
    prompt = [MASK, 1, MASK, MASK]
    many, few = run(case, name, 5, start=prompt), run(case, name, 2, start=prompt)
    assert (many.x_GL[:, 1] == 1).all() and (many.x_GL != MASK).all()
    assert torch.equal(many.x_GL[:2], few.x_GL)
    assert torch.equal(many.component_G[:2], few.component_G)
    assert (many.component_G < STRUCTURES[name]["num_components"]).all()


@every_structure
def test_scores_are_the_objective(name: str) -> None:
    """The candidates' score at one draw, against the objective of the same corruption."""
    from lkf_plugin.decode.noise import Stream, uniforms
    from lkf_plugin.objective.draws import CounterDraws
    from lkf_plugin.objective.mixture import Mixture

    net = network(name)
    seed_R, free_RL = mix(3, torch.arange(6)), torch.ones(6, L, dtype=torch.bool)
    x_RL = STRINGS[::14][:6]
    found_R = mixture_nelbo(net, x_RL, free_RL, seed_R, 1)
    tau_R = 1e-3 + (1 - 1e-3) * uniforms(seed_R, 0, 1, Stream.SCORE_TIME).squeeze(-1)
    u_RL = uniforms(seed_R, 0, L, Stream.SCORE_MASK)
    draws = CounterDraws(net.noise, MASK, tau_R, u_RL, free_RL, net.process_sigma)
    objective = Mixture({**LOSS, "backward": "dense"}, net.structure)
    corruption = objective.corrupt(x_RL, free_RL, draws)
    value = objective.loss(objective.score(net.backbone, corruption), corruption)
    torch.testing.assert_close(found_R, value.nll_B, rtol=2e-3, atol=1e-6)


def test_rows_of_a_sequence_pass_the_branch_once_per_component() -> None:
    asked = request("chain", samples=3, steps=1)
    net, passes = asked.engine.network, []
    plain = net.backbone.branch_hidden

    def counted(state: Any, at: Any, row_R: Any, component_R: Any) -> Any:
        passes.append(torch.stack((row_R, component_R), 1))
        return plain(state, at, row_R, component_R)

    net.backbone.branch_hidden = counted  # type: ignore[method-assign]
    rollouts = Rollouts.start(asked.x_GL, torch.zeros(3, dtype=torch.int64), asked.seed_G)
    asked.engine.finish(rollouts)
    assert rollouts.block_RG is not None
    wanted = rollouts.block_RG.unique().tolist()
    # all rows stand at one start: one state, run once for every component that any of them holds
    assert [p.tolist() for p in passes] == [[[passes[0][0, 0].item(), k] for k in wanted]]


def test_auto_selects_where_there_is_something_to_select_among() -> None:
    assert resolve_policy("auto", 1) == "mdlm" and resolve_policy("auto", 4) == "best_of_m"
    assert resolve_policy("auto", 1, 8) == "commit" and resolve_policy("auto", 4, 2) == "best_of_m"
