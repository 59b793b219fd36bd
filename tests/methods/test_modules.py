"""The diffusion baselines as modules: losses, chunks, sharing of noise, calls."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods import duo_math, sedd_math
from lkf_plugin.runs.common import build_module
from tests.golden_arrays import load
from tests.methods.tables import score_entropy

V, MASK = 88, 87
DIFFUSION = ("mdlm", "sedd", "duo")


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, MASK, (4, 32), generator=generator)
    return x, torch.tensor([0.05, 0.4, 0.8, 1.0])


def noisy(module, x, t):
    torch.manual_seed(1)
    return module.corrupt(x, t, module.draw_noise(x))


def test_sedd_network_is_the_originals():
    """The public network's weights give its scores: names, shapes and numbers."""
    from lkf_plugin.backbone import MatchedTrunk

    a = load("sedd/tiny_sedd_net.npz")
    network = MatchedTrunk(12, hidden_size=32, cond_dim=16, n_blocks=2, n_heads=4, dropout=0.1)
    state = {k.removeprefix("sd/"): v for k, v in a.items() if k.startswith("sd/")}
    network.load_state_dict(state)
    x, sigma = a["x"], a["sigma"]
    raw = sedd_math.masked_log_scores(network.eval()(x, sigma), sigma[:, None].expand(x.shape))
    log_score = sedd_math.pin_own_token(raw, x)
    torch.testing.assert_close(log_score, a["log_score"], rtol=1e-5, atol=1e-5)


def test_sedd_loss_is_the_formula_on_its_scores(module_of, batch):
    module, (x, t) = module_of("sedd"), batch
    xt = noisy(module, x, t)
    sigma, dsigma = module.noise(t)
    entropy = score_entropy(module(xt, sigma), sigma, xt, x, MASK)
    torch.testing.assert_close(module.token_nll(x, xt, t), entropy * dsigma[:, None])


def test_duo_loss_is_the_formula_on_its_probabilities(module_of, batch):
    module, (x, t) = module_of("duo"), batch
    xt = noisy(module, x, t)
    assert ((xt != x).float().mean(1).diff() > 0).all()
    alpha, dalpha = module.signal(t)
    columns = (alpha[:, None].expand(x.shape), dalpha[:, None].expand(x.shape))
    nll = duo_math.nelbo_integrand(module(xt, -alpha.log()), xt, x, *columns)
    torch.testing.assert_close(module.token_nll(x, xt, t), nll)
    assert nll.min() >= -1e-9


def test_mdlm_is_the_host_bit_for_bit(config_of, batch):
    x = batch[0]
    losses = []
    for name, build in (("mdlm", build_module), ("mdlm", Diffusion)):
        torch.manual_seed(0)
        module = build(config_of(name), agreetext_tokenizer())
        torch.manual_seed(5)
        losses.append(module._loss(x, torch.ones_like(x)).loss)
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", ("sedd", "duo"))
def test_chunks_change_nothing(module_of, batch, name):
    x, t = batch
    found = []
    for rows in (7, 10_000):
        module = module_of(name, f"loss.chunk_rows={rows}")
        nll = module.token_nll(x, noisy(module, x, t), t)
        weights = list(module.backbone.parameters())
        found.append((nll, torch.autograd.grad(nll.sum(), weights, allow_unused=True)))
    torch.testing.assert_close(found[0][0], found[1][0])
    for mine, wanted in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("name", DIFFUSION)
def test_native_trunk_has_positions(module_of, name):
    """With rotary positions alone, a constant text looks the same everywhere; here it does not."""
    overrides = ("+model.trunk=native", "time_conditioning=true")
    module = module_of(name, *overrides)
    x = torch.full((1, 8), MASK)
    out = module(x, torch.tensor([3.0]))
    assert not torch.allclose(out[0, 0], out[0, 5])
    flat = module_of(name, "time_conditioning=true")(x, torch.tensor([3.0]))
    torch.testing.assert_close(flat[0, 0], flat[0, 5])


@pytest.mark.parametrize("trunk", ("matched", "native"))
@pytest.mark.parametrize("tau_log10", (-1, -3))
def test_duo_reads_soft_tokens_early_and_hard_ones_late(module_of, batch, trunk, tau_log10):
    extra = ("+model.trunk=native",) if trunk == "native" else ()
    taus = [f"method.curriculum.tau_log10_{end}={tau_log10}" for end in ("start", "end")]
    module = module_of("duo", "method.curriculum.columns=8", *extra, *taus).train()
    x = batch[0]
    module._optimizer_step = lambda: 0
    torch.manual_seed(2)
    early = module._loss(x, torch.ones_like(x)).loss
    early.backward()
    table = next(module.backbone.parameters())
    assert table.grad.abs().sum() > 0 and early.isfinite()
    module._optimizer_step = lambda: 2
    torch.manual_seed(2)
    late = module._loss(x, torch.ones_like(x)).loss
    torch.manual_seed(2)
    plain = module.eval()._loss(x, torch.ones_like(x)).loss
    assert torch.equal(late, plain) and not torch.allclose(early, late)


def test_a_sharp_soft_token_is_its_hard_token(module_of, batch):
    """At tau -> 0 the network's output is that on the argmax."""
    from lkf_plugin.methods.denoiser import encode, encode_soft

    module = module_of("duo")
    gamma = torch.full((4,), -2.0, dtype=torch.float64)
    torch.manual_seed(0)
    soft = module._latent(batch[0], gamma, -9.0)
    sigma = torch.full((4,), 0.5)
    mine = encode_soft(module.backbone, soft, (4, 32), sigma).h_BLD
    torch.testing.assert_close(mine, encode(module.backbone, soft.hard_N.view(4, 32), sigma).h_BLD)


@pytest.mark.parametrize(("name", "last"), (("mdlm", 1), ("sedd", 1), ("duo", 1)))
def test_calls_are_counted_both_ways(module_of, name, last):
    module = module_of(name, "time_conditioning=true")
    torch.manual_seed(0)
    x = module._sample(5)
    assert x.shape == (4, 32)
    assert module.last_decoded.steps_calls == 5
    assert module.last_decoded.network_calls == 5 + last
    if name != "duo":
        assert int(x.max()) < MASK


@pytest.mark.parametrize("name", DIFFUSION)
def test_best_of_one_is_the_single_chain(module_of, name):
    best = module_of(name, "decode=best_of_n", "decode.num_candidates=1")
    single = module_of(name)
    drawn = []
    for module in (best, single):
        torch.manual_seed(1)
        drawn.append(module._sample())
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", DIFFUSION)
def test_best_of_n_scores_every_candidate_and_counts_it(module_of, name):
    n, T, J = 3, 2, 4
    settings = ("decode=best_of_n", f"decode.num_candidates={n}", f"decode.score_draws={T}")
    module = module_of(name, "time_conditioning=true", *settings)
    torch.manual_seed(0)
    module._sample(J)
    decoded = module.last_decoded
    assert decoded.steps_calls == n * (J + T)
    assert decoded.network_calls == n * (J + 1 + T)
    assert decoded.score_GC.shape == (4, n)


@pytest.mark.parametrize("name", DIFFUSION)
def test_equal_candidates_tie_and_the_score_is_the_bound(module_of, batch, name):
    """Candidates share their noise; the mean score is the mean loss of the texts."""
    module, x = module_of(name, "training.antithetic_sampling=false"), batch[0]
    torch.manual_seed(0)
    score = module.score(torch.stack((x, x)), 3)
    assert torch.equal(score[:, 0], score[:, 1])
    draws = 150
    torch.manual_seed(0)
    scores = module.score(x[None], draws)
    ones = torch.ones_like(x)
    with torch.no_grad():
        losses = torch.stack([module._loss(x, ones).nlls.sum(-1) for _ in range(draws)])
    error = 4 * losses.std(0) * (2 / draws) ** 0.5
    assert ((scores[:, 0] - losses.mean(0)).abs() < error).all()


def test_build_module_takes_the_group(config_of):
    for name in (*DIFFUSION, "ar"):
        module = build_module(config_of(name), agreetext_tokenizer())
        assert type(module).__name__.lower() == name
    assert type(build_module(config_of("auto"), agreetext_tokenizer())) is Diffusion
