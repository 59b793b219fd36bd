"""The law of a free latent for j steps and a frozen one after, by enumeration of every path."""

from __future__ import annotations

import itertools

import pytest
import torch

from lkf_plugin.corruption import reveal_probabilities, sampling_times
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policies.deferred import deferred
from lkf_plugin.decode.policy import DecodeRequest
from tests.decode.test_engine import MASK, L, V, clean_probs, network


def undecided_network():
    """Its router's favourite depends on the state, and is far from certain."""
    net = network()
    with torch.no_grad():
        out = net.backbone.router.out
        out.weight.mul_(8.0)
        out.bias.sub_(net.prior(torch.full((1, L), MASK))[0])
    return net


def after_one_step(net, x, k, tau, reveal):
    """Next states and their chances under component k."""
    probs = clean_probs(net, torch.tensor(x), k, tau)
    options = []
    for i, token in enumerate(x):
        if token != MASK:
            options.append([(token, 1.0)])
        else:
            shown = [(v, reveal * probs[i, v].item()) for v in range(V - 1)]
            options.append([(MASK, 1 - reveal), *shown])
    for path in itertools.product(*options):
        chance = 1.0
        for _, p in path:
            chance *= p
        yield tuple(token for token, _ in path), chance


def exact_law(net, num_steps, free_steps):
    """P(final sequence); on the paper's grid nothing is left masked."""
    tau, reveal = sampling_times(num_steps, 0.0), reveal_probabilities(num_steps, 0.0)
    start = (MASK,) * L
    states = {start: 1.0}
    for j in range(free_steps):
        moved = {}
        for x, mass in states.items():
            w = net.prior(torch.tensor(x)[None], tau[j])[0].exp()
            for k in range(net.num_components):
                for y, chance in after_one_step(net, x, k, tau[j], reveal[j]):
                    moved[y] = moved.get(y, 0.0) + mass * w[k].item() * chance
        states = moved
    final = {}
    for x, mass in states.items():
        k = int(net.prior(torch.tensor(x)[None], tau[free_steps])[0].argmax())
        held = {x: mass}
        for j in range(free_steps, num_steps):
            moved = {}
            for y, m in held.items():
                for z, chance in after_one_step(net, y, k, tau[j], reveal[j]):
                    moved[z] = moved.get(z, 0.0) + m * chance
            held = moved
        for y, m in held.items():
            final[y] = final.get(y, 0.0) + m
    return {y: p for y, p in final.items() if MASK not in y}


@pytest.mark.parametrize("free_steps", [0, 1, 2])
def test_empirical_law_is_the_exact_law(free_steps):
    net, rows = undecided_network(), 40_000
    start = torch.full((rows, L), MASK)
    request = DecodeRequest(RolloutEngine(net, 2, 0.0), start, mix(11, torch.arange(rows)))
    decoded = deferred(request, {"switch_step": free_steps})
    law = exact_law(net, 2, free_steps)
    assert sum(law.values()) == pytest.approx(1.0)
    for y, p in law.items():
        seen = (decoded.x_GL == torch.tensor(y)).all(-1).double().mean().item()
        assert abs(seen - p) < 4.5 * (p * (1 - p) / rows) ** 0.5 + 1e-9, (y, p, seen)


def test_the_free_steps_matter():
    net = undecided_network()
    laws = [exact_law(net, 2, j) for j in (0, 1, 2)]
    distance = [sum(abs(laws[0][y] - law[y]) for y in law) for law in laws[1:]]
    assert min(distance) > 0.02  # else the test above could not tell them apart
