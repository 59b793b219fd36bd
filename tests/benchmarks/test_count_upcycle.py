"""The counted cost of an upcycled model is that of the network that would be trained."""

from __future__ import annotations

import pytest
import torch
from count_upcycle import OWT, per_token, weights

from lkf_plugin.backbone import build_backbone
from tests.tiny import MODEL

SIZES = {
    "hidden_size": OWT.d,
    "cond_dim": 128,
    "n_blocks": OWT.blocks,
    "n_heads": OWT.heads,
    "length": OWT.length,
    "latent_blocks": OWT.latent,
}


@pytest.mark.parametrize("components", [1, 8])
def test_weights_are_those_of_the_network(components: int) -> None:
    with torch.device("meta"):
        model = build_backbone(
            {**MODEL, **SIZES, "num_components": components}, OWT.vocab, OWT.vocab - 1
        )
    there = sum(weight.numel() for weight in model.parameters())
    assert weights(OWT, components) == pytest.approx(there, rel=0.01)


def test_a_mixture_costs_its_scores_and_what_is_drawn() -> None:
    """The docs' 2.6 times M = 1; without a component more, a draw more costs what it should."""
    assert per_token(OWT, 8, 2.0) / per_token(OWT, 1, 1.0) == pytest.approx(2.6, abs=0.05)
    one_draw = per_token(OWT, 8, 3.0) - per_token(OWT, 8, 2.0)
    one_component = per_token(OWT, 9, 2.0) - per_token(OWT, 8, 2.0)
    assert one_draw == pytest.approx(3 * one_component)
