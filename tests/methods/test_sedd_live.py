"""Our SEDD against SEDD's own code, on its weights, taken over by our importer."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.sedd import SEDD
from lkf_plugin.runs.common import build_module
from lkf_plugin.upstream.shims import swapped
from tests.methods import upstream

HOME = upstream.find_checkout("sedd")
if HOME is None:
    pytest.skip(upstream.reason_to_skip("sedd"), allow_module_level=True)

V, L = 88, 32
MASK = V - 1  # SEDD's mask is always the last id, and AgreeText's happens to be
SIZES = {"hidden_size": 16, "cond_dim": 8, "n_blocks": 2, "n_heads": 2, "length": L}
MODULES = (
    "catsample",
    "graph_lib",
    "losses",
    "model",
    "model.ema",
    "noise_lib",
    "sampling",
    "utils",
)
# without `flash_attn.layers` SEDD turns queries and keys by code of its own
FLASH = {
    "flash_attn": {},
    "flash_attn.flash_attn_interface": {
        "flash_attn_varlen_qkvpacked_func": upstream.varlen_attention
    },
}
CLOSE = {torch.float32: 2e-5, torch.float64: 1e-11}

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def sedd() -> SimpleNamespace:
    """SEDD's modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = upstream.load(HOME, MODULES, FLASH)
    assert "graph_lib" not in sys.modules and str(HOME) not in sys.path
    return found


@pytest.fixture(params=CLOSE, ids=str)
def dtype(request):
    with upstream.working_in(request.param):
        yield request.param


@pytest.fixture
def pair(sedd, config_of, dtype, tmp_path):
    """``pair(dropout, "key=value", ...)``: (their network, our module) with the same weights.

    Both hold the weight average of a checkpoint that SEDD wrote.
    """

    def build(dropout: float, *overrides: str) -> tuple[torch.nn.Module, SEDD]:
        sizes = {**SIZES, "dropout": dropout, "scale_by_sigma": True}
        config = {"graph": {"type": "absorb"}, "tokens": V - 1, "model": sizes}
        torch.manual_seed(0)
        theirs = sedd.model.SEDD(OmegaConf.create(config))
        upstream.shake(theirs, 1)
        ema = sedd.model_ema.ExponentialMovingAverage(theirs.parameters(), decay=0.9)
        upstream.shake(theirs, 2)
        ema.update(theirs.parameters())
        state = {
            "optimizer": torch.optim.AdamW(theirs.parameters()),
            "model": SimpleNamespace(module=theirs),  # theirs is wrapped by DDP
            "ema": ema,
            "step": 1,
        }
        sedd.utils.save_checkpoint(tmp_path / "checkpoint.pth", state)
        ema.copy_to(theirs.parameters())
        start = upstream.imported(tmp_path / "checkpoint.pth")
        dropped = f"model.dropout={dropout}"
        ours = build_module(config_of("sedd", start, dropped, *overrides), agreetext_tokenizer())
        return theirs.to(dtype), ours.to(dtype)

    return build


@pytest.fixture
def texts():
    return torch.randint(0, MASK, (4, L), generator=torch.Generator().manual_seed(3))


def process(sedd):
    return sedd.graph_lib.Absorbing(V - 1), sedd.noise_lib.LogLinearNoise()


def test_this_is_the_commit_that_was_compared():
    upstream.require_compared("sedd", HOME)


def test_the_average_came_over_by_name(pair):
    theirs, ours = pair(0.0)
    wanted = theirs.state_dict()
    assert wanted.keys() == ours.backbone.state_dict().keys()
    for name, tensor in ours.backbone.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name


def test_log_scores_agree(sedd, pair, texts, dtype):
    theirs, ours = pair(0.0)
    graph, noise = process(sedd)
    sigma = noise(torch.tensor([0.02, 0.3, 0.7, 1.0]))[0]  # on both sides of their switch at 0.5
    torch.manual_seed(1)
    xt = graph.sample_transition(texts, sigma[:, None])
    assert 0 < (xt == MASK).sum() < xt.numel()
    with torch.no_grad():
        wanted, found = theirs.eval()(xt, sigma), ours.eval()(xt, sigma)
    assert found.dtype == dtype and wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dropout", (0.0, 0.1))
def test_a_training_step_agrees(sedd, pair, texts, dtype, dropout):
    """Times, masks and dropout are drawn by each code, from one seed."""
    theirs, ours = pair(dropout, "training.antithetic_sampling=false")
    graph, noise = process(sedd)
    torch.manual_seed(5)
    wanted = sedd.losses.get_loss_fn(noise, graph, train=True)(theirs, texts)
    wanted.mean().backward()
    torch.manual_seed(5)
    found = ours.train()._loss(texts, torch.ones_like(texts))
    found.loss.backward()
    close = CLOSE[dtype]
    torch.testing.assert_close(found.nlls.sum(-1), wanted, rtol=close, atol=close)
    # their loss is a sum over the positions, ours a mean
    upstream.assert_same_gradients(ours.backbone, theirs, L, rtol=close, atol=close)


@pytest.mark.parametrize("predictor", ("analytic", "euler"))
@pytest.mark.parametrize(("steps", "eps"), ((1, 1e-5), (6, 1e-5), (2, 0.3)))
def test_sampling_steps_agree(sedd, pair, dtype, predictor, steps, eps):
    """Weights of every draw, and the chain that the same random numbers make of them.

    A chain that stops at ``eps`` = 0.3 leaves masks to the last pass. There the random numbers
    part, because theirs has no column for the mask, so only the weights are compared.
    """
    settings = (f"sampling.predictor={predictor}", "method.float64_draws=false")
    theirs, ours = pair(0.0, *settings)
    original, mine = [], []
    draw = upstream.recorded(sedd.catsample.sample_categorical, original)
    sampler = sedd.sampling.get_pc_sampler(*process(sedd), (4, L), predictor, steps, eps=eps)
    torch.manual_seed(7)
    with (
        swapped(sedd.sampling, "sample_categorical", draw),
        swapped(sedd.graph_lib, "sample_categorical", draw),
    ):
        wanted = sampler(theirs)
    ours.draw = upstream.recorded(ours.draw, mine)
    torch.manual_seed(7)
    with torch.no_grad():
        found = ours.eval().draw_chains(ours._sample_prior(4, L), steps, eps).x_GL
    if eps < 0.1:
        assert torch.equal(found, wanted) and wanted.unique().numel() > 5

    assert len(original) == len(mine) == steps + 1
    *stepped, last = mine
    assert not last[..., MASK].any()  # they cut the mask's column off instead
    for weights, wanted in zip([*stepped, last[..., :MASK]], original, strict=True):
        torch.testing.assert_close(weights, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])
