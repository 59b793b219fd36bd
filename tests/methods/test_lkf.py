"""The mixin over the built-in host: at M = 1 it is MDLM; beyond, what it trains and reports."""

from __future__ import annotations

import math

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from lkf_plugin.config import register_resolvers
from lkf_plugin.config.folder import config_folder
from lkf_plugin.corpora import agreetext
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.information.step import step_information
from lkf_plugin.methods.lkf import bind
from lkf_plugin.objective.draws import HostDraws
from lkf_plugin.subs import subs_log_probs

SIZES = (
    "host=builtin",
    "data=agreetext",
    "model.hidden_size=32",
    "model.n_blocks=3",
    "model.n_heads=2",
    "model.cond_dim=16",
    "model.dropout=0.1",
    "loader.eval_batch_size=5",
    "sampling.steps=4",
    "trainer.accelerator=cpu",
)


class WordTokenizer:
    """As much of a tokenizer as the module reads."""

    vocab_size = agreetext.VOCAB_SIZE
    mask_token = None
    mask_token_id = None

    def __len__(self) -> int:
        return self.vocab_size


def config(*overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=[*SIZES, *overrides])


def lkf(*overrides: str, seed: int = 0):
    chosen = config("model=lkf", "loss=mixture", "model.latent_blocks=1", *overrides)
    torch.manual_seed(seed)
    return bind(Diffusion)(chosen, WordTokenizer())


def mdlm(*overrides: str, seed: int = 0):
    torch.manual_seed(seed)
    return Diffusion(config("model=small", "loss=mdlm", *overrides), WordTokenizer())


def padded_batch():
    x0 = agreetext.sample(6, 4, seed=3)
    attention = torch.ones(6, 32)
    attention[2, 20:] = 0
    return x0, attention


def scramble(module, seed=1):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.backbone.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


@pytest.mark.parametrize(
    "option",
    [
        "training.antithetic_sampling=true",
        "training.antithetic_sampling=false",
        "training.importance_sampling=true",
        "training.change_of_variables=true",
        "time_conditioning=true",
    ],
)
def test_one_component_is_mdlm_bit_for_bit(option):
    """Same seed: same weights, loss, per-token values and gradients, dropout on, padding there."""
    ours, theirs = lkf("model.num_components=1", option), mdlm(option)
    trunk = ours.backbone.trunk
    for a, b in zip(trunk.parameters(), theirs.backbone.parameters(), strict=True):
        assert torch.equal(a, b)
        b.data.add_(0.1)
        a.data.copy_(b)
    x0, attention = padded_batch()
    results = []
    for module in (ours, theirs):
        module.train()
        torch.manual_seed(11)
        results.append(module._loss(x0, attention))
        results[-1].loss.backward()
    assert torch.equal(results[0].loss, results[1].loss)
    assert torch.equal(results[0].nlls, results[1].nlls)
    for a, b in zip(trunk.parameters(), theirs.backbone.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    assert ours.backbone.latent_emb.weight.grad is None
    assert all(p.grad is None for p in ours.backbone.router.parameters())


def test_one_component_samples_as_mdlm_does():
    ours, theirs = lkf("model.num_components=1").eval(), mdlm().eval()
    for a, b in zip(ours.backbone.trunk.parameters(), theirs.backbone.parameters(), strict=True):
        b.data.add_(0.1 * torch.randn(b.shape))
        a.data.copy_(b)
    samples = []
    for module in (ours, theirs):
        torch.manual_seed(4)
        samples.append(module._sample(num_steps=5))
    assert torch.equal(*samples)
    assert (samples[0] != agreetext.MASK_ID).all()


def test_gathered_head_is_the_same_loss_up_to_rounding():
    exact, fast = (
        lkf("model.num_components=1"),
        lkf("model.num_components=1", "loss.token_head=chunked"),
    )
    scramble(exact)
    fast.load_state_dict(exact.state_dict())
    x0, attention = padded_batch()
    losses = []
    for module in (exact, fast):
        module.train()
        torch.manual_seed(2)
        losses.append(module._loss(x0, attention).loss)
    assert not torch.equal(losses[0], torch.zeros(()))
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backward", ["dense", "two_phase", "drawn"])
def test_every_backward_plan_has_the_same_value(backward):
    module = lkf("model.num_components=4", f"loss.backward={backward}", "model.dropout=0")
    scramble(module)
    dense = lkf("model.num_components=4", "model.dropout=0")
    dense.load_state_dict(module.state_dict())
    x0, attention = padded_batch()
    values = []
    for m in (module, dense):
        m.train()
        torch.manual_seed(2)
        values.append(m._loss(x0, attention))
    torch.testing.assert_close(values[0].loss, values[1].loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values[0].nlls, values[1].nlls, rtol=1e-4, atol=1e-5)
    values[0].loss.backward()
    assert module.backbone.router.out.weight.grad.abs().sum() > 0


def test_validation_reports_the_marginal_nelbo_and_the_objective_apart():
    module = lkf("model.num_components=4").eval()
    scramble(module)
    x0, attention = padded_batch()
    torch.manual_seed(5)
    found = module._loss(x0, attention)
    torch.manual_seed(5)  # the same draws, through the full marginal denoiser
    drawn = module.bound.corrupt(x0, attention, HostDraws(module))
    log_probs = module.backbone(drawn.xt_BL, drawn.sigma_B)
    picked = log_probs.gather(-1, x0[..., None])[..., 0]
    expected = -picked * drawn.weight_B[:, None] * attention
    expected = expected * (drawn.xt_BL == module.mask_index)
    torch.testing.assert_close(found.nlls, expected, rtol=1e-4, atol=1e-4)
    extras = module.log_extras("val")
    assert set(extras) == {
        "mixture_nll",
        "router_entropy",
        "usage_entropy",
        "gamma_entropy",
        "dead_components",
    }
    torch.testing.assert_close(extras["mixture_nll"], found.loss)


def test_forward_serves_mdlm_s_sampler_with_marginals():
    module = lkf("model.num_components=3", "decode=mdlm").eval()
    scramble(module)
    x = torch.full((2, 32), module.mask_index)
    x[:, :4] = 5
    log_probs = module(x, module.noise(torch.tensor([0.9, 0.4]))[0])
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 32))
    torch.manual_seed(0)
    samples = module._sample(num_steps=3)
    assert samples.shape == (5, 32) and (samples != module.mask_index).all()


@pytest.mark.parametrize("decode", ["mdlm", "commit", "best_of_m"])
def test_the_time_of_the_last_step_is_an_argument(decode):
    """At 0.999 next to nothing is revealed in steps, and the rest is filled greedily."""

    def drawn(eps=None, setting=1e-5):
        module = lkf("model.num_components=3", f"decode={decode}", f"sampling.eps={setting}").eval()
        scramble(module)
        torch.manual_seed(0)
        return module._sample(2, eps)

    assert torch.equal(drawn(), drawn(eps=1e-5))
    assert torch.equal(drawn(eps=0.999), drawn(setting=0.999))
    assert not torch.equal(drawn(eps=0.999), drawn())


def test_samples_do_not_depend_on_the_batch_size():
    module = lkf("model.num_components=3", "decode=best_of_m").eval()
    scramble(module)
    five = module._sample()
    module._samples_drawn = 0
    module.config.loader.eval_batch_size = 2
    pieces = torch.cat([module._sample(), module._sample(), module._sample()])
    assert torch.equal(pieces[:5], five)
    assert module.last_decoded.score_GC.shape == (2, 3)


def test_prompts_are_filled_under_every_policy():
    prompt = torch.full((32,), agreetext.MASK_ID)
    prompt[[0, 7, 20]] = torch.tensor([1, 86, 40])
    for decode in ("mdlm", "commit", "best_of_m", "best_of_n"):
        module = lkf("model.num_components=3", f"decode={decode}").eval()
        scramble(module)
        module.prompt_ids = prompt
        samples = module._sample()
        assert (samples[:, [0, 7, 20]] == prompt[[0, 7, 20]]).all()
        assert (samples != module.mask_index).all()


def test_rows_without_masks_and_padding_rows_are_harmless():
    module = lkf("model.num_components=3", "training.sampling_eps=1e-9").train()
    scramble(module)
    x0, attention = padded_batch()
    attention[4] = 0
    module._sample_t = lambda n, device: torch.full((n,), 1e-9)
    loss = module._loss(x0, attention).loss
    loss.backward()
    assert torch.isfinite(loss)
    grads = [p.grad for p in module.backbone.parameters() if p.grad is not None]
    assert all(torch.isfinite(g).all() for g in grads)


def captured_information(latent_emb_std: float, steps: int = 150) -> float:
    """I(k; X) at the all-mask state after a short training on AgreeText, nats."""
    module = lkf(
        "model.trunk=native",
        "model.num_components=4",
        "model.dropout=0",
        "model.open_gates=true",
        f"model.latent_emb_std={latent_emb_std}",
        "time_conditioning=true",
    )
    module.train()
    data = agreetext.sample(4000, 4, seed=0)
    optimizer = torch.optim.AdamW(
        [p for p in module.backbone.parameters() if p.requires_grad], lr=5e-3, betas=(0.9, 0.99)
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x0 = data[torch.randint(len(data), (32,), generator=generator)]
        module._loss(x0, torch.ones(x0.shape)).loss.backward()
        torch.nn.utils.clip_grad_norm_(module.backbone.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    module.eval()
    x = torch.full((1, 32), module.mask_index)
    sigma = module.noise(torch.ones(1))[0]
    with torch.no_grad():
        state = module.backbone.encode(x, sigma)
        logits = module.backbone.logits(module.backbone.branch(state))
        logp = subs_log_probs(logits, x.expand(4, -1), module.mask_index)
        logw = module.backbone.route(state).logw_BK[0]
    found = step_information(logw, logp[..., : agreetext.VOCAB_SIZE], 2000)
    assert found.information.value <= math.log(4) + 4 * found.information.se
    return found.information.value


def test_symmetry_breaks_within_150_steps():
    assert captured_information(1.0) > 0.5


def test_a_small_latent_embedding_silences_the_mixture():
    """The trap that the default avoids: N(0, 0.02) embeddings leave the components equal."""
    assert captured_information(0.02) < 0.002
