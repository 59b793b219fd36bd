"""Our SDTT against SDTT's own code, on its weights, taken over by our importer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.sdtt import SDTT
from lkf_plugin.methods.sdtt_math import DISTANCES, without_mask
from lkf_plugin.runs.common import build_module
from tests.methods import upstream
from tests.methods.sdtt_code import MASK, L, V, module_of_theirs, rewritten

HOME = upstream.find_checkout("sdtt")
if HOME is None:
    pytest.skip(upstream.reason_to_skip("sdtt"), allow_module_level=True)

CLOSE = 1e-9
pytestmark = [
    pytest.mark.usefixtures("in_float64"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture
def pair(config_of, tmp_path):
    """``pair("kl-bwd", ...)``: (theirs, ours): equal teachers and equal other students."""

    def build(distance: str = "kl-bwd", average: bool = False) -> tuple[Any, SDTT]:
        theirs = module_of_theirs(
            HOME,
            tmp_path,
            f"parameterization.distill_mode={distance}",
            f"parameterization.use_ema_on_growth={str(average).lower()}",
        )
        student, teacher = rewritten(theirs, tmp_path)
        theirs.ema.copy_to(theirs.iter_params())
        theirs.init_ema()
        ours = build_module(
            config_of(
                "sdtt",
                upstream.imported(student),
                upstream.imported(teacher, "method.teacher"),
                f"method.distance={distance}",
                f"method.ema_on_growth={str(average).lower()}",
                "method.time_grid=upstream",
                "method.float64_draws=false",
                "method.rounds=1",
                "training.ema=0.9",
            ),
            agreetext_tokenizer(),
        )
        return theirs, ours.train()

    return build


@pytest.fixture
def texts():
    return torch.randint(0, MASK, (4, L), generator=torch.Generator().manual_seed(3))


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_this_is_the_commit_that_was_compared():
    upstream.require_compared("sdtt", HOME)


def test_student_and_teacher_came_over_by_name(pair):
    theirs, ours = pair()
    same(ours.backbone.state_dict(), theirs.backbone.state_dict())
    same(ours.teacher.state_dict(), theirs.teacher[0].state_dict())
    assert ours.vocab_size == theirs.vocab_size == V


@pytest.mark.parametrize("number", (0, 4))
@pytest.mark.parametrize("distance", DISTANCES)
def test_a_training_step_agrees(pair, texts, distance, number):
    """Times, masks and the teacher's rollout are drawn by each code, from one seed.

    Their ``mse`` and ``tvd`` also count what the networks say of the mask: it is taken out of them.
    """
    theirs, ours = pair(distance)
    if distance in ("mse", "tvd"):
        of_all = theirs._loss_fn
        theirs._loss_fn = lambda *logp: of_all(*(without_mask(one, MASK) for one in logp))
    theirs.dt, ours.round = theirs.dt * 2**number, number
    torch.manual_seed(5)
    wanted = theirs.train().loss(texts)
    wanted.backward()
    torch.manual_seed(5)
    mine = ours._loss(texts, torch.ones_like(texts))
    mine.loss.backward()
    torch.testing.assert_close(mine.loss, wanted, rtol=CLOSE, atol=CLOSE)
    upstream.assert_same_gradients(ours.backbone, theirs.backbone, 1, rtol=1e-7, atol=1e-9)


def test_the_teachers_targets_and_times_agree(pair, texts):
    theirs, ours = pair()
    t = torch.tensor([0.02, 0.3, 0.7, 1.0])
    xt = texts.where(torch.rand(texts.shape) < 0.3, MASK)
    for number in range(7):
        theirs.dt, ours.round = (1 - 1e-5) / 1024 * 2**number, number
        times, update = [], theirs._compute_ddpm_update

        def watched(x, t, *rest, update=update, times=times, **named):
            times.append(t)
            return update(x, t, *rest, **named)

        theirs._compute_ddpm_update = watched
        torch.manual_seed(7)
        wanted = theirs._teacher_logprobs_on_mask(xt, t)
        theirs._compute_ddpm_update = update
        torch.manual_seed(7)
        mine = ours.targets(xt, t).logp_BLV
        steps = [step.t_B for step in ours.teacher_steps(t)]
        torch.testing.assert_close(torch.stack(steps), torch.stack(times), rtol=CLOSE, atol=CLOSE)
        mine, wanted = (without_mask(logp[xt == MASK], MASK) for logp in (mine, wanted))
        torch.testing.assert_close(mine, wanted, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("average", (False, True), ids=("trained", "average"))
def test_a_new_round_begins_alike(pair, texts, average, tmp_path, monkeypatch):
    """Who teaches, what the student goes on from, its average, and the teacher's step."""
    theirs, ours = pair(average=average)
    for module in (theirs, ours):
        upstream.shake(module.backbone, 4)
        weights = list(module.backbone.parameters())
        module.ema.update(weights)
    saved: list[Path] = []
    theirs._trainer = SimpleNamespace(global_step=20_000, save_checkpoint=saved.append)
    theirs.log = lambda **logged: None
    theirs.training_step({"input_ids": texts})
    ours._trainer = SimpleNamespace(global_step=0)
    ours._enter_round(2)
    same(ours.backbone.state_dict(), theirs.backbone.state_dict())
    same(ours.teacher.state_dict(), theirs.teacher[0].state_dict())
    assert (ours.ema.num_updates, saved[0].name) == (theirs.ema.num_updates, "20000.ckpt")
    for mine, wanted in zip(ours.ema.shadow_params, theirs.ema.shadow_params, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=CLOSE, atol=CLOSE)
    t = torch.tensor([0.9])
    (first, _) = ours.teacher_steps(t)
    assert (first.t_B - first.s_B).item() == pytest.approx(theirs.dt, rel=1e-12)


@pytest.mark.parametrize("steps", (1, 6))
def test_chains_agree(pair, steps):
    theirs, ours = pair()
    torch.manual_seed(7)
    wanted = theirs.eval().sample(n_samples=4, num_steps=steps, seq_len=L)
    torch.manual_seed(7)
    with torch.no_grad():
        mine = ours.eval().draw_chains(ours._sample_prior(4, L), steps, 1e-5).x_GL
    assert torch.equal(mine, wanted) and wanted.unique().numel() > 5
