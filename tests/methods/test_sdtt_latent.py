"""method=sdtt_lkf: a mixture taught by a mixture, a component at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.methods.sdtt_latent import LatentSDTT
from lkf_plugin.runs.common import build_module
from lkf_plugin.runs.load import load_run
from lkf_plugin.subs import subs_log_probs
from tests.methods.conftest import LATENT
from tests.methods.kills import last

ROUNDS = ("trainer.max_steps=8", "method.rounds=2", "method.base_steps=8", "optim.lr=1e-3")
Runs = Callable[..., DictConfig]


@pytest.fixture
def teacher(trained: Callable[..., Path]) -> Path:
    """A mixture's last checkpoint, four steps old."""
    return trained("auto", *LATENT)


@pytest.fixture
def runs(config_of: Callable[..., DictConfig], tmp_path: Path, teacher: Path) -> Runs:
    def made(folder: str, *words: str) -> DictConfig:
        words = (*LATENT, f"method.teacher={teacher}", *ROUNDS, *words)
        return config_of("sdtt_lkf", *words, f"run_dir={tmp_path / folder}")

    return made


def module_from(config: DictConfig) -> Any:
    torch.manual_seed(0)
    module = build_module(config, agreetext_tokenizer())
    assert isinstance(module, LatentSDTT)
    module.teacher.double()
    return module.double()


def apart(module: Any) -> None:
    """Components and router that differ: four steps have taught them little."""
    for network in (module.backbone, module.teacher):
        torch.manual_seed(3)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.1 * torch.randn_like(weight))


def test_both_sides_speak_under_the_component_that_the_teacher_drew(runs) -> None:
    """What the teacher's first step reveals has its component's law on the text as it is."""
    module = module_from(runs("run"))
    apart(module)
    xt = torch.randint(4, 20, (6, 32))
    xt[:, ::2] = module.mask_index
    t_B = torch.full((6,), 0.5, dtype=torch.float64)
    sigma_B = module.noise(t_B)[0]
    drawn: list[torch.Tensor] = []
    real = module.draw

    def noted(weights: torch.Tensor) -> torch.Tensor:
        drawn.append(real(weights))
        return drawn[-1]

    module.draw = noted
    lesson = module.lesson(xt, t_B, sigma_B)
    component_B, revealed_BL = drawn  # from the router, then the first step's tokens
    assert component_B.shape == (6,) and component_B.max() < 3 and len(component_B.unique()) > 1
    masked = xt == module.mask_index
    later = masked & (torch.where(masked, revealed_BL, xt) == module.mask_index)
    first = masked & ~later  # revealed by the first step, whose text is xt itself
    for network, said in ((module.backbone, lesson.student_BLV), (module.teacher, None)):
        state = network.encode(xt, module._process_sigma(sigma_B))
        logits = network.logits(network.branch(state)).unflatten(0, (6, 3))
        own = logits[torch.arange(6), component_B]
        wanted = subs_log_probs(own, xt, module.mask_index)
        if said is None:
            found = lesson.targets.logp_BLV[first]
            torch.testing.assert_close(found, wanted[first], rtol=0, atol=1e-12)
        else:
            torch.testing.assert_close(said, wanted, rtol=0, atol=1e-12)
    assert first.any() and later.any() and lesson.targets.calls == 2
    assert lesson.latent_B is not None
    assert lesson.latent_B.abs().max() < 1e-12  # two networks with the same router


def test_a_student_comes_back_to_its_teacher(runs) -> None:
    """Spoilt heads and routers are mended: tokens and latents both learn."""
    module = module_from(runs("run", "method.base_steps=1024"))
    apart(module)
    x0 = torch.randint(4, 20, (16, 32))
    with torch.no_grad():
        for weight in (*module.backbone.router.parameters(), module.backbone.head_weight):
            weight.add_(0.5 * torch.randn_like(weight))
    optimizer = torch.optim.AdamW(module.backbone.parameters(), lr=3e-3)
    losses, routers = [], []
    for _ in range(40):
        loss = module.train()._loss(x0, torch.ones_like(x0)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        routers.append(float(module._router_nats))
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert sum(routers[-5:]) < 0.5 * sum(routers[:5])


def test_the_student_is_a_mixture(runs, tmp_path):
    cli.run(runs("whole"))
    run = load_run(tmp_path / "whole", checkpoint=str(last(tmp_path / "whole")))
    drawn = run.sample({"policy": "best_of_m", "score_draws": 1}, 2, 3, seed=0)
    assert drawn.score_GC is not None and drawn.score_GC.shape == (3, 3)
    assert run.module.training_facts()["trained_for_steps"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model.num_components=1",), "needs components"),
        (("model.latent=chain", "model.block_components=2", "model.block_length=8"), "sequence"),
        (("model.num_components=4",), "holds another network|num_components"),
    ],
)
def test_what_does_not_fit_is_told(runs, words, said) -> None:
    with pytest.raises(UserError, match=said):
        cli.run(runs("run", *words))


def test_a_network_without_latents_is_told(config_of, teacher) -> None:
    with pytest.raises(UserError, match="latent-kernel network: take model=lkf"):
        cli.run(config_of("sdtt_lkf", f"method.teacher={teacher}", *ROUNDS))
