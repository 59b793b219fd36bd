"""commit and best_of_m: what they deliver, their scores, and what they must not depend on."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.policies.best_of_n import best_of_n
from lkf_plugin.decode.policies.commit import commit
from lkf_plugin.decode.policy import DecodeRequest
from lkf_plugin.decode.registry import resolve_policy
from lkf_plugin.decode.scores import mixture_nelbo
from lkf_plugin.decode.selectors import pick
from lkf_plugin.errors import UserError
from tests.tiny import tiny_backbone

BEST = {"selector": "nelbo", "score_draws": 3, "shared_noise": False, "min_prior": None}


def request(samples=6, steps=4, seed=1, prompt=None, **changes) -> DecodeRequest:
    net = DecodeNetwork(tiny_backbone(**changes), LogLinearNoise(), lambda s: s.double())
    with torch.no_grad():  # a prior with three living components, unequal
        net.backbone.router.out.weight.zero_()
        net.backbone.router.out.bias.copy_(torch.linspace(0.5, -0.5, net.num_components))
    start = torch.full((8,), net.mask_index) if prompt is None else prompt
    return DecodeRequest(
        RolloutEngine(net, steps), start.repeat(samples, 1), mix(seed, torch.arange(samples))
    )


@pytest.mark.parametrize("selector", ["nelbo", "evidence"])
def test_at_one_component_best_of_m_is_the_plain_chain(selector):
    r = request(num_components=1)
    plain = commit(r, {"component": "router"})
    best = best_of_m(r, {**BEST, "selector": selector})
    assert torch.equal(plain.x_GL, best.x_GL)


@pytest.mark.parametrize("selector", ["nelbo", "evidence"])
def test_the_winner_is_the_solo_chain_of_the_lowest_score(selector):
    r = request()
    best = best_of_m(r, {**BEST, "selector": selector})
    assert torch.equal(best.component_G, best.score_GC.argmin(-1))
    for k in range(3):
        solo = commit(r, {"component": k})
        won = best.component_G == k
        assert torch.equal(best.x_GL[won], solo.x_GL[won])


def test_samples_do_not_depend_on_the_batch():
    for policy, settings in ((commit, {"component": "router"}), (best_of_m, BEST)):
        many, few = policy(request(6), settings), policy(request(2), settings)
        assert torch.equal(many.x_GL[:2], few.x_GL)


def test_calls_by_the_methods_own_count():
    assert commit(request(), {"component": "random"}).steps_calls == 4
    assert best_of_m(request(), BEST).steps_calls == 3 * (4 + 3)
    evidence = best_of_m(request(), {**BEST, "selector": "evidence"})
    assert evidence.steps_calls == 3 * 4
    assert evidence.network_calls <= evidence.steps_calls


def test_best_of_n_is_n_streams_of_one_component():
    r = request()
    settings = {**BEST, "num_candidates": 5, "component": 1}
    best = best_of_n(r, settings)
    assert best.score_GC.shape == (6, 5) and (best.component_G == 1).all()
    assert best.steps_calls == 5 * (4 + 3)
    assert len(set(best.score_GC[0].tolist())) == 5
    one = best_of_n(r, {**settings, "num_candidates": 1})
    assert (one.score_GC[:, 0] >= best.score_GC.min(-1).values).all()


def test_prompts_are_kept_and_filled():
    prompt = torch.tensor([2, 1, 2, 4, 2, 2, 0, 2])
    for policy, settings in ((commit, {"component": "router"}), (best_of_m, BEST)):
        x = policy(request(prompt=prompt), settings).x_GL
        assert (x[:, prompt != 2] == prompt[prompt != 2]).all() and (x != 2).all()


def test_commit_follows_the_router():
    r = request(samples=4000, steps=1)
    w = r.prior()[0].exp()
    share = torch.bincount(commit(r, {"component": "router"}).component_G, minlength=3) / 4000
    assert (share - w).abs().max() < 4.5 * 0.5 / 4000**0.5


def test_a_dead_component_gives_no_candidates():
    prior = torch.tensor([[0.6, 0.39, 0.01], [1e-9, 1e-9, 1e-9]]).log()
    assert living_components(prior, None).tolist() == [[True, True, False], [True, False, False]]
    r = request()
    with torch.no_grad():
        r.engine.network.backbone.router.out.bias[1] -= 50.0
    best = best_of_m(r, BEST)
    assert (best.component_G != 1).all()
    assert torch.isinf(best.score_GC[:, 1]).all()
    assert best.steps_calls == 2 * (4 + 3)


def test_shared_noise_reveals_the_same_positions():
    """With one stream the candidates differ by their component only."""
    r = request(samples=1)
    with torch.no_grad():
        r.engine.network.backbone.latent_emb.weight.copy_(
            r.engine.network.backbone.latent_emb.weight[:1].expand(3, -1)
        )
    same = best_of_m(r, {**BEST, "shared_noise": True, "selector": "evidence"})
    scores = same.score_GC[0]  # equal but for the order in which a product adds up
    torch.testing.assert_close(scores, scores[:1].expand(3), rtol=1e-12, atol=0)
    tied = torch.zeros(1, 3, dtype=torch.float64)
    assert pick(r, tied, DecodeOptions.read(BEST)).item() == 0  # the first of equals
    apart = best_of_m(r, {**BEST, "selector": "evidence"})
    assert len(set(apart.score_GC[0].tolist())) == 3


def test_nelbo_score_is_unbiased_and_its_draws_are_shared():
    """Against quadrature over tau and enumeration of masks, L = 2."""
    net = DecodeNetwork(
        tiny_backbone(vocab_size=4, mask_index=2, num_components=2),
        LogLinearNoise().double(),
        lambda s: s.double(),
    )
    x = torch.tensor([[0, 3], [1, 1]])
    free = torch.ones(2, 2, dtype=torch.bool)
    exact = torch.zeros(2, dtype=torch.float64)
    tau = torch.linspace(1e-3, 1, 2001, dtype=torch.float64)
    mid = (tau[1:] + tau[:-1]) / 2
    sigma, dsigma = net.noise(mid)
    chance = 1 - torch.exp(-sigma)
    from lkf_plugin.kernel import log_mixture
    from lkf_plugin.objective.components import HeadSettings, component_scores

    for mask in ([True, False], [False, True], [True, True]):
        m = torch.tensor(mask)
        prob = torch.where(m, chance[:, None], 1 - chance[:, None]).prod(-1)
        for row in range(2):
            xt = torch.where(m, 2, x[row]).expand(len(mid), -1)
            scores = component_scores(
                net.backbone,
                xt,
                x[row].expand(len(mid), -1),
                m.expand(len(mid), -1),
                sigma,
                HeadSettings("full"),
            )
            log_psi = log_mixture(scores.logw_BM, scores.logp_BML.sum(-1))
            exact[row] += -(prob * dsigma / torch.expm1(sigma) * log_psi).mean()
    reps = 4000
    seeds = mix(9, torch.arange(reps))
    scores = [
        mixture_nelbo(net, x[row].expand(reps, -1), free[:1].expand(reps, -1), seeds, 2, 4000)
        for row in range(2)
    ]
    for row in range(2):
        error = scores[row].std() / math.sqrt(reps)
        assert abs(scores[row].mean() - exact[row]) < 4.5 * error
    shared = (scores[0] - scores[1]).var()
    independent = scores[0].var() + scores[1].var()
    assert shared < 0.5 * independent


def test_auto_policy():
    assert resolve_policy("auto", 1) == "mdlm"
    assert resolve_policy("auto", 8) == "best_of_m"
    assert resolve_policy("commit", 8) == "commit"


def test_unknown_choices_are_named():
    with pytest.raises(UserError, match="from 0 to 2"):
        commit(request(), {"component": 3})
    with pytest.raises(UserError, match="selector=luck is unknown"):
        best_of_m(request(), {**BEST, "selector": "luck"})
