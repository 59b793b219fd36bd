"""Loads exported folders where this package is not, and writes what their models compute.

python -I in_bare_process.py asked.pt answered.pt
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path = [place for place in sys.path if not Path(place, "lkf_plugin").exists()]
assert importlib.util.find_spec("lkf_plugin") is None

import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402


def answer(asked: dict) -> dict:
    """Logits of averaged and raw weights, samples, losses and a training step of one folder."""
    folder, x_BL, sigma_B = asked["folder"], asked["x"], asked["sigma"]
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    answered = {"training": model.training, "tokenizer": None}
    with torch.no_grad():
        answered["logits"] = model(x_BL, sigma_B).logits
        answered["loss"] = model(x_BL, sigma_B, labels=asked["clean"]).loss
        torch.manual_seed(5)
        answered["drawn_loss"] = model.training_loss(asked["clean"])
    for name, settings in asked["samples"].items():
        drawn = model.sample(**settings)
        answered[name] = (drawn.input_ids, drawn.component, drawn.score)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    answered["text"] = tokenizer.decode(asked["clean"][0])
    if asked["raw"]:
        raw = AutoModel.from_pretrained(folder, trust_remote_code=True, variant="raw")
        with torch.no_grad():
            answered["raw_logits"] = raw(x_BL, sigma_B).logits
    model.train()
    before = model(x_BL, sigma_B, labels=asked["clean"]).loss
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    before.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        after = model(x_BL, sigma_B, labels=asked["clean"]).loss
    answered["trained"] = (before.detach(), after)
    model.save_pretrained(asked["saved"])
    tokenizer.save_pretrained(asked["saved"])
    again = AutoModel.from_pretrained(asked["saved"], trust_remote_code=True)
    with torch.no_grad():
        answered["saved_loss"] = again(x_BL, sigma_B, labels=asked["clean"]).loss
    return answered


if __name__ == "__main__":
    cases = torch.load(sys.argv[1], weights_only=True)
    torch.save({name: answer(one) for name, one in cases.items()}, sys.argv[2])
