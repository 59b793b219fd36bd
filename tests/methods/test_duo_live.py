"""Our DUO against DUO's own code, on its weights, taken over by our importer."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from hydra import compose, initialize_config_dir

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.duo import DUO
from lkf_plugin.methods.duo_curriculum import Curriculum
from lkf_plugin.runs.common import build_module
from lkf_plugin.upstream.shims import no_judge_tokenizer, swapped
from tests.methods import upstream

HOME = upstream.find_checkout("duo")
if HOME is None:
    pytest.skip(upstream.reason_to_skip("duo"), allow_module_level=True)

V, L = 88, 32
TABLE = "integral/bert-base-uncased.pkl"  # of the checkout
THEIRS = (
    "model=tiny",
    *upstream.TINY,
    f"model.length={L}",
    f"algo.curriculum.integral_cache_path={HOME / TABLE}",
)
DATA = {"dataloader": {}}  # of the checkout, and as unused
CLOSE = {torch.float32: 2e-5, torch.float64: 1e-10}

# no CUDA to autocast on, and torch.jit.script, which has had its day
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def duo() -> SimpleNamespace:
    """DUO's modules."""
    stand_ins = {**upstream.FLASH, **DATA, **upstream.where_missing(upstream.UNUSED)}
    found = upstream.load(HOME, ("algo", "trainer_base"), stand_ins)
    assert "trainer_base" not in sys.modules and str(HOME) not in sys.path
    return found


@pytest.fixture(params=CLOSE, ids=str)
def dtype(request):
    with upstream.working_in(request.param):
        yield request.param


@pytest.fixture
def build(duo, config_of, tmp_path):
    """``build("duo", theirs=(...), ours=(...))``: (their module, ours) with the same weights.

    Both hold the weight average of a checkpoint as DUO's trainer writes it.
    """

    def pair(algo: str, theirs: Sequence[str], ours: Sequence[str]) -> tuple[Any, DUO]:
        with initialize_config_dir(str(HOME / "configs"), version_base="1.3"):
            # algo=duo holds the curriculum's settings, which duo_base does without
            config = compose("config", ["algo=duo", *THEIRS, *theirs])
        kind = {"duo": duo.algo.DUO, "duo_base": duo.algo.DUO_BASE}[algo]
        torch.manual_seed(0)
        with no_judge_tokenizer(transformers.AutoTokenizer):
            module = kind(config, agreetext_tokenizer())
        assert module.vocab_size == V
        upstream.shake(module.backbone, 1)
        module.ema.update(module._get_parameters())
        checkpoint = {
            "state_dict": module.state_dict(),
            "ema": module.ema.state_dict(),
            "hyper_parameters": {"config": module.config},
            "global_step": 1,
        }
        torch.save(checkpoint, tmp_path / "duo.ckpt")
        module.ema.copy_to(module._get_parameters())
        start = upstream.imported(tmp_path / "duo.ckpt")
        mine = build_module(config_of("duo", start, *ours), agreetext_tokenizer())
        mine._optimizer_step = lambda: 0
        return module, mine

    return pair


@pytest.fixture
def pair(build, dtype):
    """The same without the curriculum, in ``dtype``."""

    def plain(theirs: Sequence[str] = (), ours: Sequence[str] = ()) -> tuple[Any, DUO]:
        modules = build("duo_base", theirs, ("method.curriculum.end=0", *ours))
        return tuple(module.to(dtype) for module in modules)

    return plain


@pytest.fixture
def texts():
    return torch.randint(0, V - 1, (4, L), generator=torch.Generator().manual_seed(3))


def test_this_is_the_commit_that_was_compared():
    upstream.require_compared("duo", HOME)


def test_the_average_came_over_by_name(pair):
    theirs, ours = pair()
    wanted = theirs.backbone.state_dict()
    assert wanted.keys() == ours.backbone.state_dict().keys()
    for name, tensor in ours.backbone.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name


def test_log_probabilities_agree(pair, texts, dtype):
    theirs, ours = pair()
    sigma = torch.tensor([0.001, 0.3, 1.0, 6.9])
    with torch.no_grad():
        wanted, found = theirs.eval()(texts, sigma[:, None]), ours.eval()(texts, sigma)
    assert found.dtype == dtype and wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dropout", (0.0, 0.1))
def test_a_training_step_agrees(pair, texts, dtype, dropout):
    """Times, noise and dropout are drawn by each code, from one seed."""
    dropped = (f"model.dropout={dropout}",)
    theirs, ours = pair(theirs=dropped, ours=dropped)
    attended = torch.ones_like(texts)
    attended[0, 20:] = 0
    torch.manual_seed(5)
    wanted = theirs.train()._loss(texts, None, attended)
    wanted.loss.backward()
    torch.manual_seed(5)
    found = ours.train()._loss(texts, attended)
    found.loss.backward()
    close = CLOSE[dtype]
    torch.testing.assert_close(found.nlls.sum(), wanted.nlls, rtol=close, atol=close)
    torch.testing.assert_close(found.loss, wanted.loss, rtol=close, atol=close)
    upstream.assert_same_gradients(ours.backbone, theirs.backbone, 1, rtol=close, atol=close)


@pytest.mark.parametrize("last_pass", ("ancestral", "greedy", "none"))
@pytest.mark.parametrize("steps", (1, 6))
def test_sampling_steps_agree(duo, pair, dtype, last_pass, steps):
    """Weights of every draw, and the chain that the same random numbers make of them."""
    theirs, ours = pair(
        theirs=(f"sampling.noise_removal={last_pass}",), ours=(f"method.last_pass={last_pass}",)
    )
    original, mine = [], []
    draw = upstream.recorded(duo.trainer_base.sample_categorical, original)
    torch.manual_seed(7)
    with swapped(duo.trainer_base, "sample_categorical", draw):
        wanted = theirs.eval().generate_samples(num_samples=4, num_steps=steps, eps=1e-5)
    ours.draw = upstream.recorded(ours.draw, mine)
    torch.manual_seed(7)
    with torch.no_grad():
        found = ours.eval().draw_chains(ours._sample_prior(4, L), steps, 1e-5).x_GL
    assert torch.equal(found, wanted) and wanted.unique().numel() > 1
    assert len(original) == len(mine) == steps + (last_pass == "ancestral")
    for weights, wanted in zip(mine, original, strict=True):
        assert weights.dtype == wanted.dtype == torch.float64
        torch.testing.assert_close(weights, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


# --- the curriculum, which is float32 in theirs ------------------------------------------------


@pytest.mark.parametrize(("tau_log10", "close"), ((-1, 2e-5), (-3, 2e-3)))
def test_a_curriculum_step_agrees(build, texts, tau_log10, close):
    """The latent is drawn by each code, from one seed; float32 over tau = 0.001 loses digits.

    Their tables are for vocabularies of other sizes, so our signal is given to both.
    """
    ends = ("start", "end")
    theirs, ours = build(
        "duo",
        [f"algo.curriculum.gumbel_tau_log10_{end}={tau_log10}" for end in ends],
        [f"method.curriculum.tau_log10_{end}={tau_log10}" for end in ends],
    )
    theirs._gamma_to_alpha_dalpha = lambda gamma, t: ours.curriculum.signal(t, V)[1:]
    torch.manual_seed(5)
    # their `_loss` passes labels, which this method does not take at the commit compared
    wanted = theirs.train().nll(texts, None, train_mode=True)
    wanted.mean().backward()
    torch.manual_seed(5)
    found = ours.train()._loss(texts, torch.ones_like(texts))
    found.loss.backward()
    torch.testing.assert_close(found.nlls, wanted.to(found.nlls), rtol=close, atol=close)
    upstream.assert_same_gradients(ours.backbone, theirs.backbone, 1, rtol=close, atol=close)


def test_the_signal_agrees_with_their_table(duo):
    """They look up 100,000 points and take a difference quotient; we integrate."""
    K, ends = 30_522, (-3.5, -1.75)
    with (HOME / TABLE).open("rb") as file:
        table = pickle.load(file)
    arrays = {key: torch.from_numpy(table[key]) for key in ("pt", "grad_pt")}
    module = SimpleNamespace(
        gamma_min=ends[0], gamma_max=ends[1], vocab_size=K, integral_cache={**table, **arrays}
    )
    t = torch.linspace(0, 1, 101)
    gamma, alpha, dalpha = Curriculum(0, 1, -3, -3, *ends).signal(t, K)
    wanted = duo.algo.DUO._gamma_to_alpha_dalpha_cached(module, gamma)
    torch.testing.assert_close(alpha, wanted[0], rtol=0, atol=5e-5)
    torch.testing.assert_close(dalpha, wanted[1], rtol=3e-3, atol=0)
