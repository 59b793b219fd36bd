"""Laws of the rollout engine, by enumeration of every path on a tiny vocabulary."""

from __future__ import annotations

import itertools

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise, reveal_probabilities, sampling_times
from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.subs import subs_log_probs
from tests.tiny import tiny_backbone

MASK, V, L = 2, 3, 2  # two words and the mask


def network(**changes):
    # a wilder scramble makes every law a point mass, and the tests below empty
    model = tiny_backbone(vocab_size=V, mask_index=MASK, scramble=0.15, **changes)
    return DecodeNetwork(model, LogLinearNoise().double(), lambda s: s.double())


def clean_probs(net, x, k, tau):
    """P^k of every position at time tau for one state, [L, V]."""
    model = net.backbone
    state = model.encode(x[None], net.sigma_at(tau, 1, x.device))
    branch = model.branch(state, torch.tensor([0]), torch.tensor([k]))
    return subs_log_probs(model.logits(branch), x[None], MASK).exp()[0]


def exact_law(net, k, num_steps, eps):
    """P(final sequence) of the frozen-component chain, by summing over all paths."""
    tau, reveal = sampling_times(num_steps, eps), reveal_probabilities(num_steps, eps)
    states = {(MASK,) * L: 1.0}
    for j in range(num_steps):
        after = {}
        for x, mass in states.items():
            probs = clean_probs(net, torch.tensor(x), k, tau[j])
            options = []
            for i, token in enumerate(x):
                if token != MASK:
                    options.append([(token, 1.0)])
                    continue
                shown = [(v, reveal[j] * probs[i, v].item()) for v in range(V - 1)]
                options.append([(MASK, 1 - reveal[j]), *shown])
            for path in itertools.product(*options):
                y = tuple(token for token, _ in path)
                p = mass
                for _, q in path:
                    p *= q
                after[y] = after.get(y, 0.0) + p
        states = after
    final = {}
    for x, mass in states.items():
        best = clean_probs(net, torch.tensor(x), k, tau[-1]).argmax(-1)
        y = tuple(b if t == MASK else t for t, b in zip(x, best.tolist(), strict=True))
        final[y] = final.get(y, 0.0) + mass
    return final


@pytest.mark.parametrize("num_steps", [1, 2, 3])
@pytest.mark.parametrize("eps", [0.0, 0.2])
def test_empirical_law_is_the_exact_law(num_steps, eps):
    net = network()
    rows, k = 40_000, 1
    start = torch.full((rows, L), MASK)
    rollouts = Rollouts.start(start, torch.full((rows,), k), mix(11, torch.arange(rows)))
    RolloutEngine(net, num_steps, eps).finish(rollouts)
    law = exact_law(net, k, num_steps, eps)
    assert sum(law.values()) == pytest.approx(1.0)
    assert max(law.values()) < 0.9
    for y, p in law.items():
        seen = (rollouts.x_RL == torch.tensor(y)).all(-1).double().mean().item()
        assert abs(seen - p) < 4.5 * (p * (1 - p) / rows) ** 0.5 + 1e-9, (y, p, seen)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 5])
def test_one_component_has_mdlm_s_law_on_every_grid(num_steps):
    """Exact transition of MDLM's cached update against the engine's reveal law.

    MDLM draws each masked position from q = P (tau - tau') with q[mask] = tau', normalised by
    tau: it stays masked with chance tau'/tau, else takes v with (1 - tau'/tau) P(v).
    """
    net = network(num_components=1)
    eps = 1e-5
    tau = torch.linspace(1, eps, num_steps + 1, dtype=torch.float64)
    reveal = reveal_probabilities(num_steps, eps)
    assert sampling_times(num_steps, eps) == pytest.approx(tau.tolist(), rel=1e-12)
    for j in range(num_steps):
        for x in itertools.product(range(V), repeat=L):
            p_x0 = clean_probs(net, torch.tensor(x), 0, float(tau[j]))
            q = p_x0 * (tau[j] - tau[j + 1])
            q[:, MASK] = tau[j + 1]
            law = q / q.sum(-1, keepdim=True)
            for i, token in enumerate(x):
                if token == MASK:
                    assert law[i, MASK].item() == pytest.approx(1 - reveal[j], abs=1e-12)
                    expected = reveal[j] * p_x0[i, :MASK]
                    torch.testing.assert_close(law[i, :MASK], expected, rtol=1e-9, atol=1e-12)


def run(net, rows, num_steps=6, length=8, seed=3, components=None):
    start = torch.full((rows, length), net.mask_index)
    components = torch.arange(rows) % 3 if components is None else components
    rollouts = Rollouts.start(start, components, mix(seed, torch.arange(rows)))
    RolloutEngine(net, num_steps).finish(rollouts)
    return rollouts


def test_a_row_does_not_depend_on_its_batch():
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    many = run(net, 7)
    few = run(net, 3)
    assert torch.equal(many.x_RL[:3], few.x_RL)
    torch.testing.assert_close(many.evidence_R[:3], few.evidence_R)
    assert torch.equal(many.calls_R[:3], few.calls_R)


def test_a_survivor_does_not_depend_on_the_pruned():
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    whole = run(net, 4)
    start = torch.full((4, 8), net.mask_index)
    rollouts = Rollouts.start(start, torch.arange(4) % 3, mix(3, torch.arange(4)))
    engine = RolloutEngine(net, 6)
    for j in range(6):
        if j == 2:
            rollouts.alive_R[[0, 2]] = False
        engine.run_step(rollouts)
    engine.fill_residual(rollouts)
    assert torch.equal(rollouts.x_RL[[1, 3]], whole.x_RL[[1, 3]])
    assert (rollouts.x_RL[[0, 2]] == net.mask_index).any(-1).all()
    assert (rollouts.calls_R[[0, 2]] <= 2).all()


def test_revealed_tokens_and_prompts_never_change():
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    m = net.mask_index
    start = torch.tensor([[m, 1, m, 4, m, m, 0, m]]).repeat(5, 1)
    rollouts = Rollouts.start(start, torch.zeros(5, dtype=torch.int64), mix(0, torch.arange(5)))
    engine = RolloutEngine(net, 8)
    for _ in range(8):
        before = rollouts.x_RL.clone()
        engine.run_step(rollouts)
        shown = before != m
        assert torch.equal(rollouts.x_RL[shown], before[shown])
    engine.fill_residual(rollouts)
    assert (rollouts.x_RL != m).all()
    assert torch.equal(start[start != m], rollouts.x_RL[start != m])


def test_evidence_is_the_log_probability_of_the_path():
    """J = 1: evidence equals sum_i log P_i^k(x_i) at the all-mask state."""
    net = network()
    rows = 4
    start = torch.full((rows, L), MASK)
    rollouts = Rollouts.start(start, torch.full((rows,), 2), mix(5, torch.arange(rows)))
    RolloutEngine(net, 1, eps=0.0).finish(rollouts)
    logp = clean_probs(net, start[0], 2, 1.0).log()
    expected = logp[torch.arange(L), rollouts.x_RL].sum(-1)
    torch.testing.assert_close(rollouts.evidence_R, expected)


def test_calls_are_counted_as_they_happen():
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    asked = 0
    encode = net.backbone.encode

    def counting(x_BL, *rest):
        nonlocal asked
        asked += x_BL.shape[0]
        return encode(x_BL, *rest)

    net.backbone.encode = counting
    rollouts = run(net, 6, num_steps=20)
    first_step_rows = int((rollouts.calls_R > 0).sum())
    # the first step's rows are all alike and share one trunk pass only if all reveal at once, so
    # the real number lies between the two counts
    assert asked <= int(rollouts.calls_R.sum()) <= asked + first_step_rows
    assert (rollouts.calls_R <= 8).all()  # eight positions cannot need more than eight calls


def encoded_rows(net, monkeypatch):
    """Rows that the trunk is asked for, call by call."""
    asked, encode = [], net.backbone.encode

    def counting(x_BL, *rest):
        asked.append(x_BL.shape[0])
        return encode(x_BL, *rest)

    monkeypatch.setattr(net.backbone, "encode", counting)
    return asked


def test_rows_at_a_common_start_share_one_trunk_pass(monkeypatch):
    """Also when they leave it in different steps, among rows that have moved on."""
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    m = net.mask_index
    prompts = torch.tensor([[m] * 8, [m, 1, m, 4, m, m, 0, m]]).repeat_interleave(5, 0)

    def roll():
        rollouts = Rollouts.start(prompts, torch.arange(10) % 2, mix(4, torch.arange(10)))
        RolloutEngine(net, 12).finish(rollouts)
        return rollouts

    with monkeypatch.context() as patch:
        asked = encoded_rows(net, patch)
        shared = roll()
    calls = int(shared.calls_R.sum())
    assert sum(asked) < calls, "five rows leave each start, in few different steps"
    with monkeypatch.context() as patch:
        patch.setattr(Rollouts, "alike", lambda self, active_R: None)
        asked = encoded_rows(net, patch)
        alone = roll()
    assert sum(asked) == calls
    assert torch.equal(shared.x_RL, alone.x_RL)
    torch.testing.assert_close(shared.evidence_R, alone.evidence_R)


def test_one_step_from_all_masks_runs_the_trunk_once(monkeypatch):
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda s: s.double())
    asked = encoded_rows(net, monkeypatch)
    rollouts = run(net, 9, num_steps=1)
    assert asked[0] == 1 and (rollouts.calls_R >= 1).all()
