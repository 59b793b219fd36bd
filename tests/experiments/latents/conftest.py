"""Records of a study of structures, with figures that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.latents.measure import ARM, CEILING, NATS, SEED, STEPS, TRAINED
from lkf_plugin.evaluate.run_records import LIKELIHOOD, SAMPLES
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record

TOKENS = 10
COMMON: dict[str, Any] = {"code": "test", "libraries": {}, "subject": {"method": "lkf"}}
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a run's records: nats per token of each sequence by J, and figures of samples."""

    def one(
        arm: str,
        seed: int,
        nats: Mapping[int, list[float]],
        samples: Mapping[int, Mapping[str, float]] | None = None,
        sampling_seed: int = 1,
    ) -> None:
        labels = {ARM: arm, SEED: seed, "trained_steps": 7}
        series: dict[str, Any] = {"tokens": [TOKENS] * len(next(iter(nats.values())))}
        metrics = {CEILING: Estimate(1.25, 0.01, 3), TRAINED: Estimate(60.0)}
        for J, values in nats.items():
            for kind in ("", "_frozen"):
                series[f"nll{kind}@{J}"] = [value * TOKENS for value in values]
                mean = sum(values) / len(values)
                metrics[f"nll{kind}@{J}"] = Estimate(mean, 0.02, len(values))
        settings = {"sequences": len(series["tokens"]), "arm": arm, "of": seed}
        write_record(
            Record(kind=LIKELIHOOD, name=f"x.{arm}.s{seed}", settings=settings, metrics=metrics,
                   series={NATS: series}, labels=labels, **COMMON),
            tmp_path,
        )  # fmt: skip
        for J, figures in (samples or {}).items():
            drawn = {name: Estimate(value, 0.01, 50) for name, value in figures.items()}
            settings = {"samples": 50, "arm": arm, "of": seed, "sampling": {"steps": J}}
            settings["seed"] = sampling_seed
            write_record(
                Record(kind=SAMPLES, name=f"x.{arm}.s{seed}.J{J}", settings=settings,
                       metrics=drawn, labels={**labels, STEPS: J}, **COMMON),
                tmp_path,
            )  # fmt: skip

    return one
