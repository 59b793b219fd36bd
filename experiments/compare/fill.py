"""Everything that a comparison lacks, row by row; it may be stopped at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments.compare.likelihood import held_out_nats
from experiments.compare.rows import Row
from experiments.compare.sampling import sample_row
from experiments.compare.store import CellStore, missing_cells
from experiments.compare.training import train_row
from lkf_plugin.evaluate.cells import Samples
from lkf_plugin.modes.ppl_eval import file_digest
from lkf_plugin.runs.load import LoadedRun, load_run

Grid = Callable[[str, str], Sequence[int]]  # (row, decode) -> values of J
Measure = Callable[[LoadedRun, str, str, int, Samples], dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how.

    Attributes:
        out: folder of the runs and of the results.
        rows: every row by its name, in the order of the tables.
        grid: J of a row and a decoding.
        measure: (run, row, decode, J, samples) -> a cell: ``row``, ``decode``, ``J`` and figures.
        samples: a cell.
        passes: draws of noise for the likelihood.
        seed: of training, likelihood and samples.
        batch_size: texts decoded at once; None decodes a cell in one batch.
        steps: of training, instead of the recipes'.
        judge: what judges the samples; part of the key.
    """

    out: Path
    rows: Mapping[str, Row]
    grid: Grid
    measure: Measure
    samples: int
    passes: int
    seed: int
    batch_size: int | None = None
    steps: int | None = None
    judge: str | None = None

    def key(self, digest: str) -> str:
        """All that an entry's figures depend on; ``digest`` is the checkpoint's or the data's."""
        key = f"{digest[:16]} n={self.samples} passes={self.passes} seed={self.seed}"
        return key if self.judge is None else f"{key} judge={self.judge}"

    def fill(self, store: CellStore, name: str) -> LoadedRun:
        """Trains, evaluates and samples what is missing of one row; returns its run."""
        run = load_run(train_row(self.out, self.rows, name, self.seed, self.steps))
        entry = store.entry(name, self.key(file_digest(run.checkpoint)))
        if "nll" not in entry:
            nats = held_out_nats(run, self.passes, self.seed)
            weights = sum(p.numel() for p in run.module.backbone.parameters())
            entry |= {"step": run.step, "weights": weights}
            entry |= {"nll": nats.value, "nll_se": nats.se}
            store.save()
        decodings = self.rows[name].decodings
        plan = [(decode, J) for decode in decodings for J in self.grid(name, decode)]
        for decode, J in tqdm(missing_cells(entry, plan), desc=f"sampling {name}", unit="cell"):
            size = self.batch_size or self.samples
            drawn = sample_row(run, name, decode, J, self.samples, self.seed, size)
            entry["cells"].append(self.measure(run, name, decode, J, drawn))
            store.save()
        return run
