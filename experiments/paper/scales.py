"""Sizes at which the tables are made: the paper's, a workstation's, and two CPU cores'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.runner import Run


@dataclass(frozen=True)
class Corpus:
    """Models and cells on one corpus.

    Attributes:
        name: of the run folders.
        components: M of the models; in this order, a later one may start from an earlier.
        train: overrides of ``main.py``, apart from M and the run folder.
        mixture: the overrides at M > 1, where they are others.
        tables: which of the paper's tables are made.
        grid: J.
        samples: a cell.
        sequences: held-out sequences of the likelihood.
        judge: None where the corpus has a grammar.
        judged_chains: chains per component that the judge hears alone.
        self_bleu: texts in self-BLEU.
        batch_size: samples decoded at once.
        in_turn: whether mixtures start from the M = 1 model's best checkpoint.
    """

    name: str
    components: tuple[int, ...]
    train: tuple[str, ...]
    mixture: tuple[str, ...]
    tables: tuple[str, ...]
    grid: tuple[int, ...]
    samples: int
    sequences: int
    judge: str | None
    judged_chains: int | None
    self_bleu: int
    batch_size: int
    in_turn: bool = False

    def run_folder(self, out: Path, M: int) -> Path:
        """Where a model's run lives."""
        return out / "runs" / self.name / f"M{M}"

    def run(self, out: Path, M: int) -> Run:
        """The training run of a model."""
        start = self.run(out, 1) if self.in_turn and M > 1 else None
        words = self.mixture if M > 1 and self.mixture else self.train
        return Run(
            label=f"{self.name} M={M}",
            folder=self.run_folder(out, M),
            overrides=(*words, f"model.num_components={M}"),
            start=start,
        )


ALL = ("main", "decode", "bestofn", "commitm", "deferred", "policynfe", "probedepth", "percomp")
PAPER_GRID = (1, 2, 4, 8, 16, 32)


def _paper(name: str) -> Corpus:
    """The paper's recipe is ``configs/experiment/NAME_lkf.yaml``, and nowhere else."""
    return Corpus(
        name=name,
        components=(1, 4, 8),
        train=(f"experiment={name}_lkf",),
        mixture=(),
        tables=ALL,
        grid=PAPER_GRID,
        samples=512,
        sequences=2048,
        judge="gpt2-large",
        judged_chains=None,
        self_bleu=100,
        batch_size=64,
    )


SCALES: dict[str, tuple[Corpus, ...]] = {
    "paper": (_paper("lm1b"), _paper("wikitext103")),
    "small": (
        Corpus(
            name="sotu",
            components=(1, 4, 8),
            train=("experiment=sotu",),
            mixture=("experiment=sotu-mixture",),
            tables=ALL,
            grid=PAPER_GRID,
            samples=256,
            sequences=512,
            judge="smollm2",
            judged_chains=64,
            self_bleu=100,
            batch_size=32,
            in_turn=True,
        ),
    ),
    "tiny": (
        Corpus(
            name="agreetext",
            components=(1, 4, 8),
            train=("experiment=demo",),
            mixture=(),
            tables=ALL,
            grid=PAPER_GRID,
            samples=96,
            sequences=256,
            judge=None,
            judged_chains=None,
            self_bleu=32,
            batch_size=96,
        ),
        # A quarter of experiment=sotu, so that its text is worse than in docs/baselines.md.
        Corpus(
            name="sotu",
            components=(1, 8),
            train=("experiment=sotu", "trainer.max_steps=400", "trainer.val_check_interval=200"),
            mixture=(
                "experiment=sotu-mixture",
                "trainer.max_steps=100",
                "trainer.val_check_interval=100",
            ),
            tables=ALL,
            grid=(4, 16),
            samples=16,
            sequences=128,
            judge="smollm2",
            judged_chains=4,
            self_bleu=16,
            batch_size=16,
            in_turn=True,
        ),
    ),
}
