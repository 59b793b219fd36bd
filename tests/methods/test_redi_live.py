"""Our ReDi against ReDi's own code, on its weights, taken over by our importer."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import lightning
import pytest
import torch
import transformers
from hydra import compose, initialize_config_dir

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.duo_sampler import run_chains
from lkf_plugin.methods.redi import ReDi
from lkf_plugin.methods.redi_math import chain_steps
from lkf_plugin.methods.redi_pairs import Pairs
from lkf_plugin.runs.common import build_module
from lkf_plugin.upstream.shims import no_judge_tokenizer
from tests.methods import upstream

HOME = upstream.find_checkout("redi")
if HOME is None:
    pytest.skip(upstream.reason_to_skip("redi"), allow_module_level=True)

V, L, B = 88, 32, 4
THEIRS = (
    "algo=rectification",
    "model=tiny",
    *upstream.TINY,
    f"model.length={L}",
    f"algo.integral_cache_path={HOME / 'integral' / 'bert-base-uncased.pkl'}",
)
DATA = {"dataloader": {}}  # of the checkout, and unused
CLOSE = 2e-5  # their uniforms are float32

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def code() -> SimpleNamespace:
    """ReDi's modules."""
    stand_ins = {**upstream.FLASH, **DATA, **upstream.where_missing(upstream.UNUSED)}
    modules = upstream.load(HOME, ("algo", "trainer_base"), stand_ins)
    assert "trainer_base" not in sys.modules and str(HOME) not in sys.path
    return modules


@pytest.fixture
def build(code, config_of, tmp_path):
    """``build(theirs=(...), ours=(...))``: (their module, ours) with the same weights."""

    def pair(theirs: tuple[str, ...] = (), ours: tuple[str, ...] = ()) -> tuple[Any, ReDi]:
        with initialize_config_dir(str(HOME / "configs"), version_base="1.3"):
            config = compose("config", [*THEIRS, *theirs])
        torch.manual_seed(0)
        with no_judge_tokenizer(transformers.AutoTokenizer):
            module = code.algo.Rectification(config, agreetext_tokenizer())
        assert module.vocab_size == V
        upstream.shake(module.backbone, 1)
        module.ema.update(module._get_parameters())
        checkpoint = {
            "state_dict": module.state_dict(),
            "ema": module.ema.state_dict(),
            "hyper_parameters": {"config": module.config},
            "global_step": 1,
            "loops": loops(),
            "pytorch-lightning_version": lightning.__version__,
        }
        torch.save(checkpoint, tmp_path / "redi.ckpt")
        module.ema.copy_to(module._get_parameters())
        start = upstream.imported(tmp_path / "redi.ckpt")
        teacher = start.replace("init.from_checkpoint", "method.teacher")
        mine = build_module(config_of("redi", start, teacher, *ours), agreetext_tokenizer())
        return module, mine

    return pair


def loops() -> dict[str, Any]:
    """What their module reads of Lightning's counters when it loads."""
    counted = {"current": {"completed": 0}}
    return {"fit_loop": {"epoch_progress": counted, "epoch_loop.batch_progress": counted}}


@pytest.fixture
def coupled() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x0, xT = (torch.randint(0, V, (B, L), generator=generator) for _ in range(2))
    return x0, xT


def with_pairs(ours: ReDi, x0: torch.Tensor, xT: torch.Tensor, clean: torch.Tensor) -> ReDi:
    """Ours in a round whose pairs are these, in this order."""
    ours._pairs, ours._clean_P = Pairs(xT, x0), clean
    ours._order = SimpleNamespace(indices=lambda number: torch.arange(B))
    ours._trainer = SimpleNamespace(fit_loop=SimpleNamespace(total_batch_idx=0))
    return ours.train()


def test_this_is_the_commit_that_was_compared():
    upstream.require_compared("redi", HOME)


def test_the_average_came_over_by_name(build):
    theirs, ours = build()
    wanted = theirs.backbone.state_dict()
    for network in (ours.backbone, ours.teacher):
        assert wanted.keys() == network.state_dict().keys()
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensor, wanted[name]), name


@pytest.mark.parametrize("times", ("plain", "all", "start"))
@pytest.mark.parametrize("loss", ("elbo", "simple"))
def test_a_training_step_agrees(build, coupled, loss, times):
    """Plain pairs, and perturbed ones at all their times or at the first."""
    theirs, ours = build(
        (f"algo.use_simple_loss={str(loss == 'simple').lower()}",),
        (f"method.loss={loss}", f"method.times={'start' if times == 'start' else 'all'}"),
    )
    clean = torch.tensor([0.0, 0.25, 0.5, 0.875]) * (times != "plain")
    given = {} if times == "plain" else {"given_t": clean, "not_sampling_t": times == "start"}
    x0, xT = coupled
    torch.manual_seed(5)
    wanted = theirs.train()._loss(x0, torch.ones_like(x0), None, True, xT=xT, **given)
    wanted.loss.backward()
    torch.manual_seed(5)
    mine = with_pairs(ours, x0, xT, clean)._loss(x0, torch.ones_like(x0))
    mine.loss.backward()
    torch.testing.assert_close(mine.loss, wanted.loss, rtol=CLOSE, atol=CLOSE)
    torch.testing.assert_close(mine.nlls.sum(), wanted.nlls, rtol=CLOSE, atol=CLOSE)
    upstream.assert_same_gradients(ours.backbone, theirs.backbone, 1, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("clean", (0.0, 0.375))
@pytest.mark.parametrize("last_pass", ("greedy", "ancestral"))
def test_a_coupling_agrees(build, coupled, last_pass, clean):
    """The texts of given starts, whose chains begin at time 1 - g."""
    theirs, ours = build((f"sampling.noise_removal={last_pass}",))
    _, xT = coupled
    steps = int(chain_steps(torch.tensor([clean]), 8))
    assert steps == max(int(8 * (1 - clean)), 1)
    torch.manual_seed(7)
    wanted = theirs.eval().generate_samples(
        num_samples=B, num_steps=steps, xT=xT.clone(), given_t=clean
    )
    torch.manual_seed(7)
    with torch.no_grad():
        mine = run_chains(
            ours.eval().forward,
            ours.noise,
            xT,
            torch.full((B,), 1 - clean),
            torch.full((B,), steps),
            1e-5,
            last_pass,
            ours.draw,
        )
    assert torch.equal(mine, wanted) and wanted.unique().numel() > 5


def test_their_next_round_goes_on_from_the_trained_weights(build, code, tmp_path):
    """Ours from the average, as another run would: docs/baselines.md says so."""
    theirs, ours = build()
    with no_judge_tokenizer(transformers.AutoTokenizer):
        again = code.algo.Rectification.load_from_checkpoint(
            tmp_path / "redi.ckpt",
            tokenizer=agreetext_tokenizer(),
            config=theirs.config,
            weights_only=False,
        )
    stored = torch.load(tmp_path / "redi.ckpt", weights_only=False)
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, stored["state_dict"][name]), name
    assert again.ema.num_updates == 1
    averages = zip(ours.backbone.parameters(), again.backbone.parameters(), strict=True)
    assert not all(torch.equal(mine, raw) for mine, raw in averages)
