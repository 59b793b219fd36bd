"""SDTT's mathematics against arrays of the original code, and the laws it must obey."""

from __future__ import annotations

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from lkf_plugin.corruption import LogLinearNoise, move_chance_from_sigma
from lkf_plugin.host.ancestral import AncestralSampler, sample_categorical
from lkf_plugin.methods import sdtt_math
from lkf_plugin.methods.sdtt_math import DISTANCES, Step
from lkf_plugin.subs import subs_log_probs
from tests.golden_arrays import DECIDED, ClosestRace, assert_matches, load
from tests.methods.tables import subs_table

MASK = 7
NAMES = {"kl-bwd": "kl_bwd", "kl-fwd": "kl_fwd", "mse": "mse", "tvd": "tvd"}


def move_chance(t_B: Tensor) -> Tensor:
    return move_chance_from_sigma(LogLinearNoise()(t_B)[0])


def close(actual: Tensor, wanted: Tensor, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    torch.testing.assert_close(actual, wanted.to(actual), rtol=rtol, atol=atol)


# --- the original's arrays -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_distances_are_the_original(name):
    a = load("sdtt/losses.npz")
    distance_N = DISTANCES[name](a["student_logp"].double(), a["teacher_logp"].double())
    close(distance_N.mean(), a[NAMES[name]])


@pytest.mark.parametrize("name", ("kl-bwd", "kl-fwd", "mse"))
def test_loss_of_masked_tokens_is_the_original(name):
    a, targets = load("sdtt/loss_from_targets.npz"), load("sdtt/teacher_targets.npz")["target"]
    student, teacher = a["student_logp"][a["is_mask"]], targets[a["is_mask"]]
    close(DISTANCES[name](student, teacher).mean(), a[NAMES[name]], 1e-5)


def test_the_originals_mse_counts_the_noise_in_the_masks_column():
    """A third of it here: differences of numbers near -1e6 in float32. Ours leaves them out."""
    a, targets = load("sdtt/loss_from_targets.npz"), load("sdtt/teacher_targets.npz")["target"]
    student, teacher = a["student_logp"][a["is_mask"]], targets[a["is_mask"]]
    words = [sdtt_math.without_mask(logp, MASK) for logp in (student, teacher)]
    ours = DISTANCES["mse"](*words).mean() * 7 / 8
    noise = (student - teacher)[:, MASK].square().mean() / 8
    close(ours + noise, a["mse"], 1e-5)
    assert 0.2 < noise / a["mse"] < 0.5
    for name in ("kl-bwd", "kl-fwd"):
        close(DISTANCES[name](*words).mean(), a[NAMES[name]], 1e-5)


def test_subs_is_the_original():
    a = load("sdtt/subs.npz")
    mine = subs_log_probs(a["raw_logits"], a["xt"], MASK)
    words = [sdtt_math.without_mask(logp, MASK) for logp in (mine, a["log_probs"])]
    likely = words[1] > -1e5
    close(words[0][likely], words[1][likely], 2e-6)
    assert (words[0][~likely] < -1e5).all()


def test_times_are_the_originals_lattice():
    a = load("sdtt/sample_t.npz")
    assert_matches(sdtt_math.lattice_times(a["u"][0], 8), a["t"], "t", operand=1.0)


def test_steps_of_the_rounds_are_the_original():
    a = load("sdtt/rounds.npz")
    for number, dt, steps in zip(a["round"], a["dt"], a["effective_num_steps"], strict=True):
        assert sdtt_math.step_size(1024, int(number)) == pytest.approx(float(dt), rel=1e-15)
        if number:
            assert sdtt_math.student_steps(1024, int(number) - 1) == int(steps)
    assert sdtt_math.student_steps(1024, 6) == 8


@pytest.mark.parametrize("number", range(7))
def test_upstream_grid_is_the_original(number):
    a = load("sdtt/teacher_time_grid.npz")
    steps = sdtt_math.upstream_grid(a["t_start"], sdtt_math.step_size(1024, number))
    assert_matches(torch.stack([step.t_B for step in steps]), a[f"ts_round{number}"], "ts")


def test_weights_of_a_step_are_the_original():
    a = load("sdtt/ddpm_update.npz")
    chances = move_chance(a["t"]), move_chance(a["t"] - float(a["dt"]))
    close(sdtt_math.reveal_weights(a["log_p_x0"], *chances, MASK), a["q_xs"])


def test_targets_are_the_original(monkeypatch):
    a = load("sdtt/teacher_targets.npz")
    race, table, seen = ClosestRace(monkeypatch), subs_table(a["W"], MASK), []

    def watched(x, t):
        seen.append((x, t))
        return table(x, t)

    steps = sdtt_math.upstream_grid(a["t"], float(a["dt"]))
    torch.manual_seed(int(a["seed"]))
    targets = sdtt_math.teacher_targets(
        watched, a["xt"], steps, move_chance, sample_categorical, MASK
    )
    assert race.margin > DECIDED
    assert targets.calls == len(seen) == 2
    for number, (x, t) in enumerate(seen):  # each step's text before it
        assert torch.equal(x, a[f"x_step{number}"])
        assert_matches(t, a[f"t_step{number}"], f"t_step{number}")
    masked = a["xt"] == MASK
    mine, wanted = (
        sdtt_math.without_mask(logp[masked], MASK) for logp in (targets.logp_BLV, a["target"])
    )
    close(mine, wanted, 1e-5, 1e-5)
    for number, (t, s) in enumerate(steps):
        weights = sdtt_math.reveal_weights(
            table(a[f"x_step{number}"], t), move_chance(t), move_chance(s), MASK
        )
        close(weights, a[f"q_xs_step{number}"], 1e-5)


class Chain(AncestralSampler):
    """The host's sampler over a table; upstream's has no cache."""

    config = OmegaConf.create({"sampling": {"predictor": "ddpm", "noise_removal": True}})
    noise = LogLinearNoise()
    mask_index = MASK
    time_conditioning = False
    device = torch.device("cpu")

    def __init__(self, W: Tensor, scale: float) -> None:
        self.forward = subs_table(W, MASK, scale)


@pytest.mark.parametrize("num_steps", (1, 2, 4, 8))
def test_samples_are_the_original(num_steps):
    a = load("sdtt/sample.npz")
    torch.manual_seed(300 + num_steps)
    x = torch.full((5, 6), MASK)
    x = Chain(a["W"], float(a["student_scale"])).reverse(x, num_steps, 1e-5)
    assert torch.equal(x, a[f"ancestral_{num_steps}"])


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", sdtt_math.GRIDS)
def test_grids_share_their_first_principles(grid):
    """Steps of dt; those of the exact grid join, begin at t and never pass the least time."""
    t = torch.linspace(1e-4, 1, 40, dtype=torch.float64)
    dt = sdtt_math.step_size(1024, 3)
    steps = sdtt_math.GRIDS[grid](t, dt)
    assert len(steps) == sdtt_math.TEACHER_STEPS
    for step in steps:
        assert (step.t_B - step.s_B <= dt + 1e-15).all()
        assert (step.t_B >= 1e-5).all()
    if grid == "exact":
        assert torch.equal(steps[0].t_B, t)
        assert torch.equal(steps[0].s_B, steps[1].t_B)
        assert (steps[1].s_B >= 1e-5).all()
        late = t > 2 * dt + 1e-5
        close(steps[1].s_B[late], t[late] - 2 * dt, 1e-12, 1e-12)


def revealed_share(grid: str, t_B: torch.Tensor, dt: float) -> torch.Tensor:
    """Share of the masks at time t that the teacher's steps reveal."""
    kept_B = torch.ones_like(t_B)
    for t, s in sdtt_math.GRIDS[grid](t_B, dt):
        kept_B = kept_B * (s / t).clamp(0, 1)
    return 1 - kept_B


def test_difference_of_the_grids():
    """Share of the masks that the teacher reveals, mean over times, in percent."""
    t = torch.linspace(0, 1, 100_001, dtype=torch.float64)[1:]
    wanted = {
        "exact": [1.41, 2.55, 4.56, 8.05, 13.95, 23.57, 38.48],
        "upstream": [2.05, 3.76, 6.85, 12.35, 21.98, 38.41, 64.94],
    }
    for grid, percent in wanted.items():
        sizes = [sdtt_math.step_size(1024, number) for number in range(7)]
        shares = [float(revealed_share(grid, t, dt).mean()) for dt in sizes]
        assert [100 * share for share in shares] == pytest.approx(percent, abs=0.01), grid


def test_a_teacher_of_one_step_is_met_by_itself():
    a = load("sdtt/teacher_targets.npz")
    table, x = subs_table(a["W"], MASK), a["xt"]
    one = [Step(a["t"], a["t"] - 0.1)]
    targets = sdtt_math.teacher_targets(table, x, one, move_chance, sample_categorical, MASK)
    masked = x == MASK
    student = table(x, a["t"])[masked]
    for name, distance in DISTANCES.items():
        assert distance(student, targets.logp_BLV[masked]).abs().max() == 0, name
