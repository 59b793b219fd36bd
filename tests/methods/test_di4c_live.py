"""Our Di4C against Di4C's own code, on its weights, taken over by our importer.

Its times are shifted by 1 / T on top of the teacher's step, and its batch is one sequence: the
shift is taken out of it here, by the same function of the time without T.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.di4c import Di4C
from lkf_plugin.runs.common import build_module
from lkf_plugin.upstream.shims import swapped
from tests.methods import upstream
from tests.methods.sdtt_code import MASK, L, module_of_theirs, rewritten

HOME = upstream.find_checkout("di4c")
if HOME is None:
    pytest.skip(upstream.reason_to_skip("di4c"), allow_module_level=True)

CLOSE, LATENTS = 1e-9, 3
pytestmark = [
    pytest.mark.usefixtures("in_float64"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture
def pair(config_of, tmp_path) -> tuple[Any, Di4C]:
    """(theirs, ours): equal teachers without a latent and equal students with one."""
    words = ("is_di4c=true", f"latent_bsize={LATENTS}", "distil_delta=0.2")
    theirs = module_of_theirs(HOME, tmp_path, *words)
    student, teacher = rewritten(theirs, tmp_path)
    ours = build_module(
        config_of(
            "di4c",
            upstream.imported(student),
            upstream.imported(teacher, "method.teacher"),
            f"method.latents={LATENTS}",
            "method.delta=0.2",
            "method.float64_draws=false",
            "training.ema=0",
        ),
        agreetext_tokenizer(),
    )

    def plain(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sigma, dsigma = theirs.noise(t)
        return sigma[:, None], 1 - torch.exp(-sigma[:, None]), dsigma

    theirs._t_to_sigma = plain
    return theirs, ours.train()


@pytest.fixture
def text():
    return torch.randint(0, MASK, (1, L), generator=torch.Generator().manual_seed(3))


def widened():
    """Their frequencies of the latent name float32, which rounds angles of 1000 by 1e-4."""
    return swapped(torch, "float32", torch.float64)


class Likeliest:
    """In place of torch's law of a token: its mode, which both codes can take without a draw."""

    def __init__(self, p: Tensor) -> None:
        self.p = p

    def sample(self) -> Tensor:
        return self.p.argmax(-1)


def test_this_is_the_commit_that_was_compared():
    upstream.require_compared("di4c", HOME)


def test_student_and_teacher_came_over_by_name(pair):
    theirs, ours = pair
    wanted = theirs.backbone.state_dict()
    assert list(ours.backbone.state_dict()) == list(wanted)
    for name, tensor in ours.backbone.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    taught = theirs.teacher[0].state_dict()
    for name, tensor in ours.teacher.state_dict().items():
        if not name.startswith("latent_projection"):
            assert torch.equal(tensor, taught[name]), name


def test_log_probabilities_agree_under_the_same_latents(pair, text):
    theirs, ours = pair
    xt = text.where(torch.rand(4, L) < 0.4, MASK)
    sigma = theirs.noise(torch.tensor([0.1, 0.4, 0.7, 1.0]))[0]
    with torch.no_grad():
        torch.manual_seed(2)
        with widened():
            wanted = theirs.eval().forward(xt, sigma)
        torch.manual_seed(2)
        mine = ours.eval()(xt, sigma)
        other = ours(xt, sigma)
    torch.testing.assert_close(mine.exp(), wanted.exp(), rtol=CLOSE, atol=CLOSE)
    assert (mine.exp() - other.exp()).abs().max() > 1e-4  # the latent is heard


@pytest.mark.parametrize("t", (0.9, 0.3, 0.15), ids=("late", "early", "small"))
def test_a_training_step_agrees(pair, text, t):
    """Masks, the teacher's step and the latents are drawn by each code, from one seed.

    The student's own texts at the later state are the likeliest ones in both: theirs are drawn
    after the latents that follow, ours before.
    """
    theirs, ours = pair
    time = torch.tensor([t])
    ours._distillation_times = lambda count, device: time
    real, calls = ours.draw, iter((True, False))
    ours.draw = lambda weights: real(weights) if next(calls) else weights.argmax(-1)
    torch.manual_seed(5)
    with widened(), swapped(torch.distributions.categorical, "Categorical", Likeliest):
        wanted = theirs.train().di4c_loss(text, t=time)
    wanted.backward()
    torch.manual_seed(5)
    mine = ours._loss(text, torch.ones_like(text))
    mine.loss.backward()
    torch.testing.assert_close(mine.loss, wanted, rtol=1e-8, atol=1e-8)
    assert ours._terms is not None
    named = {
        "distil": theirs.distil_list,
        "data": theirs.data_list,
        "data_correlation": theirs.data_cor_list,
        "consistency": theirs.consis_list,
        "consistency_correlation": theirs.consis_cor_list,
    }
    for name, (value,) in named.items():
        assert getattr(ours._terms, name).item() == pytest.approx(value, abs=1e-7), name
    upstream.assert_same_gradients(ours.backbone, theirs.backbone, 1.0, rtol=1e-6, atol=1e-8)


def test_chains_agree(pair):
    """A latent per step, drawn by each code."""
    theirs, ours = pair
    torch.manual_seed(7)
    with widened():
        wanted = theirs.eval().sample(n_samples=4, num_steps=5, seq_len=L)
    torch.manual_seed(7)
    with torch.no_grad():
        mine = ours.eval().draw_chains(ours._sample_prior(4, L), 5, 1e-5).x_GL
    assert torch.equal(mine, wanted) and wanted.unique().numel() > 5
