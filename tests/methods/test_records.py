"""Records that mode=sample_eval and mode=ppl_eval leave, from the command to the table."""

from __future__ import annotations

import json
import math

import pytest
from hydra import compose, initialize_config_dir

from experiments.tables.command import write_report
from experiments.tables.layouts import LAYOUTS
from experiments.tables.lookup import Lookup
from lkf_plugin import cli
from lkf_plugin.cli import run
from lkf_plugin.config import register_resolvers
from lkf_plugin.evaluate.validation import smallest_time
from lkf_plugin.records.store import read_records
from tests.evaluate.conftest import save
from tests.methods.conftest import TINY

NAMES = ("ar", "mdlm", "sedd", "duo")


@pytest.mark.parametrize("name", NAMES)
def test_from_the_modes_to_the_main_table(config_of, tmp_path, name):
    run(config_of(name))
    report = run(config_of(name, "mode=ppl_eval"))
    for J in (2, 4):
        run(config_of(name, "mode=sample_eval", f"sampling.steps={J}"))
    run(config_of(name, "mode=sample_eval", "decode=best_of_n", "decode.num_candidates=2"))
    folder = tmp_path / "run" / "records"
    own = ["own"] if name == "ar" else ["own.J2", "own.J4"]
    best = "best_of_n.n2.nelbo" + ("" if name == "ar" else ".J3")
    found = {record.name: record for record in read_records(folder)}
    assert set(found) == {f"agreetext.{name}.{row}" for row in [*own, best, "likelihood"]}

    for record in found.values():
        assert record.method == name and record.labels["trained_steps"] == 4
        assert record.subject["host"] == "builtin" and record.setting("seed") == 1
        assert record.num_components == 1
    sampled = found[f"agreetext.{name}.{own[-1]}"]
    assert sampled.precision == "network 32-true, draws float64"
    assert sampled.value("calls") == (32 if name == "ar" else 4) and sampled.samples == 4
    assert {"valid", "entropy", "distinct_2"} <= set(sampled.metrics)
    assert found[f"agreetext.{name}.{best}"].policy == "best_of_n"

    table = LAYOUTS["main"](Lookup(read_records(folder)))
    rows = {label: (calls, entries) for label, calls, entries in table.rows}
    label = {"ar": "AR (32 calls)"}.get(name, name.upper())
    at = {column: entry for column, entry in zip(table.columns, rows[label][1], strict=True)}
    last = f"J={32 if name == 'ar' else 4}"
    assert at[last].record == sampled and at[last].entropy == sampled.metrics["entropy"].value
    assert at["ELBO-PPL"].measured.value == pytest.approx(report["metrics"]["val/ppl"])
    assert rows[f"{name.upper()}, best-of-2"][0] == ("2L" if name == "ar" else "2(J+T)")
    written = write_report(folder, tmp_path / "report", figures=False)
    assert "network 32-true, draws float64" in written[0].read_text()


@pytest.mark.parametrize("name", NAMES)
def test_likelihood_with_its_error_and_both_perplexities(config_of, tmp_path, name):
    run(config_of(name))
    report = run(config_of(name, "mode=ppl_eval"))
    metrics, found = report["metrics"], report["likelihood"]
    assert found["nelbo"]["value"] == metrics["val/nll"] and found["nelbo"]["n"] == 12
    # the module's own count of the same sequences
    assert found["nelbo"]["se"] == pytest.approx(metrics["val/nll_se"], rel=1e-6)
    ppl = found["elbo_ppl"]["value"]
    assert ppl == pytest.approx(math.exp(metrics["val/nll"]))
    assert found["elbo_ppl"]["se"] == pytest.approx(ppl * metrics["val/nll_se"])
    if name == "ar":
        assert "elbo_ppl_integral" not in found  # exact: nothing is averaged over times
    else:
        integral = math.exp((1 - 1e-3) * metrics["val/nll"])
        assert found["elbo_ppl_integral"]["value"] == pytest.approx(integral, rel=1e-12)
    (record,) = read_records(tmp_path / "run" / "records")
    assert record.metrics["nelbo"].se == found["nelbo"]["se"] and record.samples == 12
    assert report == json.loads((tmp_path / "run" / "ppl_eval.json").read_text())


def test_part_of_the_sequences(config_of):
    run(config_of("mdlm"))
    report = run(config_of("mdlm", "mode=ppl_eval", "trainer.limit_val_batches=2"))
    assert report["likelihood"]["nelbo"]["n"] == 8


def test_discrete_times_have_no_integral(config_of):
    assert smallest_time(config_of("mdlm")) == 1e-3
    assert smallest_time(config_of("mdlm", "T=10")) is None
    assert smallest_time(config_of("ar")) is None


def test_a_judge_is_part_of_the_record(tmp_path):
    """On text the judge hears each sample once, and its figure is the record's."""
    register_resolvers()
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"the cat sat on mat {i} and the dog ran" for i in range(60)))
    kept = [word for word in TINY if not word.startswith("data")]
    corpus = ["data=text", f"data.path={text}", "data.vocab_size=280", "model.length=16"]
    places = [f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}"]
    judge = [
        "eval.compute_generative_perplexity=true",
        f"eval.gen_ppl_eval_model_name_or_path={save(tmp_path / 'Judge')}",
    ]

    def config(*overrides):
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            return compose("config", [*kept, "method=sedd", *corpus, *places, *overrides])

    run(config())
    report = run(config("mode=sample_eval", *judge))
    (record,) = read_records(tmp_path / "run" / "records")
    assert record.name == "text.sedd.own.J3"
    assert record.metrics["gen_ppl[judge]"].value == report["metrics"]["gen_ppl"]
    assert record.setting("judge.label") == "judge"
    assert record.setting("judge.dtype") == report["metrics"]["judge_dtype"]
    assert "judge_entropy" in record.metrics
