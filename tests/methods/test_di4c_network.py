"""Di4C's network against the original's, weights name for name."""

from __future__ import annotations

import torch

from lkf_plugin.backbone import MatchedTrunk
from lkf_plugin.methods.di4c_network import add_latent, latent_logits
from tests.golden_arrays import load


def test_network_is_the_original_with_and_without_its_latent():
    a = load("di4c/tiny_di4c_net.npz")
    network = add_latent(MatchedTrunk(12, 32, 16, 2, 4, 0.0), 32).eval()
    state = {name.removeprefix("sd/"): value for name, value in a.items() if name.startswith("sd/")}
    network.load_state_dict(state)
    assert list(state)[-4:] == list(network.state_dict())[-4:]  # the latent's weights come last
    with torch.no_grad():
        plain = latent_logits(network, a["x"], a["sigma"], None)
        under = latent_logits(network, a["x"], a["sigma"], a["z"])
    torch.testing.assert_close(plain, a["logits_without_latent"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(under, a["logits"], rtol=1e-4, atol=1e-5)
    assert (under - plain).abs().max() > 1e-3
