"""Tables from records: what stands where, what is refused, and what is marked."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.tables import paper_numbers as paper
from experiments.tables.command import main, write_report
from experiments.tables.layouts import LAYOUTS
from experiments.tables.lookup import Lookup
from experiments.tables.render import caption, latex, long_csv, markdown
from lkf_plugin.errors import UserError
from lkf_plugin.records.comparable import check_comparable, must_agree
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record
from tests.records.make import SETTINGS, SUBJECT, record

METRIC = "gen_ppl[gpt2-large]"


def cell(M: int, row: str, J: int | None, ppl: float, **more: Any) -> Record:
    """A cell of a table; ``settings`` and ``subject`` change single keys."""
    extra = more.pop("metrics", {})
    metrics = {
        METRIC: Estimate(ppl, 1.0, 512),
        "entropy": Estimate(4.5, 0.01, 512),
        "pooled_entropy": Estimate(6.0, 0.01, 512),
        **{name: Estimate(value, None, 512) for name, value in extra.items()},
    }
    model = {**SUBJECT["model"], "num_components": M}
    decode = {"policy": row.split(".")[0], "row": row, **more.pop("decode", {})}
    values: dict[str, Any] = {
        "name": f"c.M{M}.{row}" + (f".J{J}" if J else ""),
        "metrics": metrics,
        "subject": {**SUBJECT, "model": model, **more.pop("subject", {})},
        "settings": {
            **SETTINGS,
            "decode": decode if more.get("kind", "samples") == "samples" else None,
            "sampling": {**SETTINGS["sampling"], "steps": J},
            **more.pop("settings", {}),
        },
        "labels": {"row": row, "corpus": "lm1b", "trained_steps": 4, **more.pop("labels", {})},
    }
    return record(**{**values, **more})


def changed(one: Record, place: str, value: Any) -> Record:
    """A record with another value at ``settings.seed`` or the like."""
    group, *path, last = place.split(".")
    tree = json.loads(json.dumps(getattr(one, group)))
    at = tree
    for key in path:
        at = at[key]
    at[last] = value
    return replace(one, **{group: tree})


def entries(table: Any, label: str) -> list[Any]:
    return next(entries for name, _, entries in table.rows if name == label)


def test_every_table_puts_figures_where_the_paper_has_them() -> None:
    records = [
        cell(1, "commit", 32, 300.0),
        cell(8, "best_of_m.nelbo", 32, 111.0, metrics={"share[3]": 0.4, "share_entropy": 1.2}),
        cell(8, "deferred.j4", 32, 401.0),
        cell(8, "halving", 32, 125.0),
        cell(8, "halving.shared", 32, 141.0),
        cell(8, "probe.j8.shared", 32, 160.0, metrics={"probe_agreement": 0.5}),
        cell(8, "solo.k5", 32, 150.0),
        cell(8, "solo.k5.n8.nelbo", 32, 50.0),
        cell(
            1, "likelihood", None, 1.0, kind="likelihood", metrics={"elbo_ppl": 34.0, "nelbo": 3.5}
        ),
        cell(8, "information", 8, 1.0, metrics={"information": 1.4}, kind="information"),
    ]
    for i in (-2, -1):
        kept = {k: v for k, v in records[i].metrics.items() if k not in (METRIC, "entropy")}
        records[i] = replace(records[i], metrics=kept)
    lookup = Lookup(records)
    tables = {name: layout(lookup) for name, layout in LAYOUTS.items()}
    assert tables["main"].columns == ["ELBO-PPL", "J=32", "H@32", "I(k)"]
    shown = entries(tables["main"], "LKF M=8")
    assert [e.measured.value if e.measured else None for e in shown] == [None, 111.0, 4.5, 1.4]
    assert [e.paper for e in shown] == [34.62, 105, 4.93, 1.48]
    assert entries(tables["main"], "LKF M=1")[0].measured.value == 34.0
    assert entries(tables["decode"], "M components, halving | evidence")[1].measured.value == 141
    assert entries(tables["policynfe"], "M=8, halving, evidence")[0].measured.value == 125
    place = paper.DEFERRED_J.index(4)
    assert entries(tables["deferred"], "M=8")[place].measured.value == 401
    assert entries(tables["deferred"], "M=8")[place].paper == 416
    assert entries(tables["probedepth"], "j=8")[1].measured.value == 0.5
    assert entries(tables["percomp"], "solo")[5].measured.value == 150
    assert entries(tables["percomp"], "reranked")[5].paper == 47
    assert entries(tables["percomp"], "share among best-of-8's picks")[3].measured.value == 0.4
    assert [name for name, table in tables.items() if table.empty] == ["coupling"]  # DUO's


def likelihood(M: int, ppl: float, n: int = 1000, **more: Any) -> Record:
    """As mode=ppl_eval leaves it: no samples, no judge, no draws."""
    one = cell(M, "likelihood", None, 1.0, kind="likelihood", **more)
    settings = {
        "length": 128,
        "sequences": n,
        "seed": 1,
        "ema": True,
        "precision": {"network": "32-true"},
        "estimator": "validation",
    }
    return replace(one, settings=settings, metrics={"elbo_ppl": Estimate(ppl, 1.0, n)})


def baseline(name: str, row: str, J: int | None, ppl: float, **more: Any) -> Record:
    subject = {"method": name, "model": {"hidden_size": 16}}
    calls = {"calls": 128.0 if name == "ar" else float(J or 0)}
    return cell(
        1, row, J, ppl, subject=subject, name=f"c.{name}.{row}.J{J}",
        **{**more, "metrics": {**calls, **more.get("metrics", {})}},
    )  # fmt: skip


def test_baselines_stand_in_their_rows_beside_the_paper_s() -> None:
    n4 = {"num_candidates": 4}
    records = [
        cell(8, "best_of_m.nelbo", 16, 111.0),
        baseline("mdlm", "own", 16, 400.0),
        baseline("mdlm", "best_of_n.n8.nelbo", 16, 280.0),
        baseline("sedd", "own", 32, 230.0),
        baseline("duo", "own", 32, 150.0),
        baseline("duo", "best_of_n.n4.nelbo", 32, 90.0, decode=n4),
        baseline("ar", "own", None, 140.0),
        changed(likelihood(1, 31.0), "subject.method", "sedd"),
        likelihood(1, 29.0),
    ]
    main_table = LAYOUTS["main"](Lookup(records))
    assert main_table.columns == ["ELBO-PPL", "J=16", "J=32", "H@32", "I(k)"]

    def shown(label: str) -> list[float | None]:
        return [e.measured.value if e.measured else None for e in entries(main_table, label)]

    assert shown("MDLM") == [None, 400.0, None, None, None]
    assert shown("MDLM, best-of-8")[1] == 280.0
    assert shown("SEDD") == [31.0, None, 230.0, 4.5, None]
    assert [e.paper for e in entries(main_table, "SEDD")] == [42.37, 303, 225, 4.41, None]
    assert shown("AR (128 calls)") == [None, None, 140.0, 4.5, None]
    assert entries(main_table, "AR (128 calls)")[2].paper == 135
    assert shown("LKF M=1")[0] == 29.0 and shown("LKF M=8")[1] == 111.0
    # the paper has no row for these
    assert shown("DUO") == [None, None, 150.0, 4.5, None]
    assert shown("DUO, best-of-4")[2] == 90.0
    assert [label for label, _, _ in main_table.rows[-2:]] == ["DUO, best-of-4", "DUO"]
    assert all(e.paper is None for e in entries(main_table, "DUO"))
    one_chain = entries(LAYOUTS["bestofn"](Lookup(records)), "MDLM, one chain")
    assert one_chain[0].measured.value == 400.0 and one_chain[0].paper == 467
    again = changed(records[1], "settings.sampling.eps", 0.5)
    with pytest.raises(UserError, match="claim the same place .*settings.sampling.eps=1e-05"):
        Lookup([*records, again])


def test_rounds_are_rows_and_seeds_a_mean_with_its_deviation() -> None:
    """The paper's row has the last round where its own was not reached; both are named."""
    records = []
    for number, ppl in ((1, 300.0), (2, 200.0)):
        for seed in (1, 2, 3):
            labels = {"round": number, "training_seed": seed, "trained_for_steps": 8 // number}
            one = baseline("sdtt", "own", 32, ppl + 10 * seed, labels=labels)
            records.append(changed(one, "subject.checkpoint", f"{number}-{seed}"))
    table = LAYOUTS["main"](Lookup(records))
    labels = [label for label, _, _ in table.rows]
    last = "SDTT, round 2 (paper: SDTT teacher (7 rounds))"
    assert labels.index("SDTT, round 1") + 1 == labels.index(last)
    place = table.columns.index("J=32")
    entry = entries(table, last)[place]
    assert (entry.measured.value, entry.deviation, entry.seeds) == (220.0, 10.0, 3)
    assert entry.paper == 194 and entries(table, "SDTT, round 1")[place].paper is None
    text = markdown(table, "")
    assert "220.0 ± 10.0 (4.50) 3s" in text and "320.0 ± 10.0 (4.50) 3s" in text
    (row,) = [line for line in long_csv(table).splitlines() if f'"{last}",J=32' in line]
    assert ",220.0,,10.0,3,4.5," in row
    made_for = [e[2].measured.value for _, _, e in LAYOUTS["cost"](Lookup(records)).rows]
    assert made_for == [8.0, 4.0]
    # the other tables are about the first training
    assert {record.labels["training_seed"] for record in Lookup(records).records} == {1}
    again = changed(records[0], "settings.sampling.eps", 0.5)
    with pytest.raises(UserError, match="claim the same place"):
        Lookup([*records, again])


def test_the_bounds_of_few_steps_stand_beside_the_nelbo() -> None:
    def few(M: int, method: str, **figures: float) -> Record:
        one = changed(likelihood(M, 30.0), "subject.method", method)
        metrics = {name: Estimate(value, 0.1, 9) for name, value in figures.items()}
        labels = {**one.labels, "row": "few_step"}
        return replace(one, kind="few_step", labels=labels, metrics=metrics, name="few")

    eight = few(8, "lkf", **{"nll@4": 2.0, "nll_frozen@4": 2.5})
    records = [
        cell(8, "best_of_m.nelbo", 4, 3.0),
        replace(likelihood(8, 30.0), metrics={"nelbo": Estimate(1.5, 0.1, 9)}),
        eight,
        few(1, "mdlm", **{"nll@4": 3.0}),
        changed(likelihood(1, 30.0), "subject.method", "ar"),
    ]
    table = LAYOUTS["nats"](Lookup(records))
    assert table.columns == ["NELBO", "NLL@4"]
    shown = {label: [e.measured and e.measured.value for e in row] for label, _, row in table.rows}
    assert shown["LKF M=8, a component kept"] == [1.5, 2.5]  # its chains keep the component
    assert shown["MDLM"] == [None, 3.0]
    assert {label: whose for label, whose, _ in table.rows}["AR"] == "exact"
    (note, *_) = table.notes
    assert "over texts are 0.000 to 0.100 for NELBO and 0.100 to 0.100 for NLL@J" in note


def test_a_likelihood_is_compared_by_what_it_depends_on() -> None:
    sampled = cell(8, "commit", 4, 3.0)
    check_comparable([likelihood(1, 30.0), sampled, likelihood(8, 29.0)], "t")
    for key, value in (
        ("subject.tokenizer", "other"),
        ("settings.ema", False),
        ("subject.corpus", "other"),
        ("settings.precision.network", "bf16-mixed"),
    ):
        with pytest.raises(UserError, match=f"has {key}="):
            check_comparable([sampled, changed(likelihood(1, 30.0), key, value)], "t")
    with pytest.raises(UserError, match="has settings.sequences=1000 .* has .*sequences=900"):
        check_comparable([likelihood(1, 30.0), sampled, likelihood(8, 29.0, 900)], "t")


def test_a_baseline_of_another_judge_or_precision_is_refused() -> None:
    ours, theirs = cell(8, "best_of_m.nelbo", 4, 3.0), baseline("sedd", "own", 4, 3.0)
    check_comparable([ours, theirs], "t")
    for key, value in (
        ("settings.precision.draws", "float32"),
        ("settings.judge.label", "smollm2"),
        ("settings.judge.label", None),
    ):
        with pytest.raises(UserError, match=f"has {key}={value}"):
            check_comparable([ours, changed(theirs, key, value)], "t")


def test_the_caption_is_of_the_samples() -> None:
    told = caption([likelihood(1, 30.0), cell(8, "commit", 4, 3.0)], METRIC, False)
    assert "512 samples per cell, judge gpt2-large" in told


def bestofn(without: float, fewer: float = 190.0) -> Any:
    return LAYOUTS["bestofn"](
        Lookup(
            [
                cell(1, "best_of_n.n8.nelbo", 32, 183.0, metrics={f"{METRIC}.one_fewer": fewer}),
                cell(
                    8, "best_of_m.nelbo", 32, 106.0,
                    metrics={f"{METRIC}.without_favourite": without},
                ),
            ]
        )
    )  # fmt: skip


def test_an_advantage_of_one_component_is_marked() -> None:
    honest, artifact = bestofn(120.0), bestofn(250.0)
    for table, flagged in ((honest, False), (artifact, True)):
        (gain,) = entries(table, "advantage of the mixture over M=1")
        assert gain.measured.value == pytest.approx(0.42, abs=0.002) and gain.paper == 0.42
        assert gain.flagged is flagged
        (best,) = entries(table, "LKF M=8, 8 components")
        assert best.flagged is flagged
        assert ("106.0 (4.50) !" in markdown(table, "")) is flagged
    (rest,) = entries(artifact, "... best of 7: without its favourite component")
    assert rest.measured.value == pytest.approx(1 - 250 / 190)


PLACES = sorted(must_agree(cell(1, "commit", 4, 3.0)))


@pytest.mark.parametrize("place", PLACES)
def test_what_differs_is_refused_by_name(place: str) -> None:
    one, other = cell(1, "commit", 4, 3.0), cell(8, "commit", 4, 3.0)
    check_comparable([one, other], "t")
    with pytest.raises(UserError, match=f"has {place}="):
        check_comparable([one, changed(other, place, "else")], "t")


def test_what_must_agree_is_all_but_what_tables_compare() -> None:
    assert {"subject.corpus", "settings.seed", "settings.sampling.eps", "labels.wrap"} <= {*PLACES}
    extended = changed(cell(1, "commit", 4, 3.0), "settings.sampling", {"new_key": 1})
    assert "settings.sampling.new_key" in must_agree(extended)


def test_two_judges_and_two_claims_are_refused() -> None:
    one = cell(1, "commit", 4, 3.0)
    other = replace(cell(8, "commit", 4, 3.0), metrics={"gen_ppl[x]": Estimate(1.0, None, 1)})
    with pytest.raises(UserError, match="several kinds"):
        Lookup([one, other])
    with pytest.raises(UserError, match="claim the same place"):
        Lookup([one, changed(one, "settings.seed", 2)])


def test_of_two_records_of_the_same_samples_the_fuller_is_taken() -> None:
    plain = cell(1, "commit", 4, 3.0)
    more = changed(cell(1, "commit", 4, 3.0, metrics={"self_bleu": 2.0}), "settings.eval", {"n": 1})
    for pair in ([plain, more], [more, plain]):
        lookup = Lookup(pair)
        assert lookup.find(1, "commit", 4) is more and lookup.records == [more]


def test_files_are_written_and_read_back(tmp_path: Path) -> None:
    for one in (cell(1, "commit", 4, 900.0), cell(8, "best_of_m.nelbo", 4, 600.0)):
        write_record(one, tmp_path / "records")
    assert main([str(tmp_path / "records"), "--no-figures"]) == 0
    folder = tmp_path / "report" / "lm1b"
    text = (folder / "tables.md").read_text()
    assert "600.0 (4.50) | 625 |" in text and "gpt2-large" in text and "512 samples" in text
    assert r"\begin{tabular}" in (folder / "commitm.tex").read_text()
    rows = list(csv.DictReader((folder / "commitm.csv").open()))
    (best,) = [row for row in rows if row["row"] == "best-of-8" and row["column"] == "J=4"]
    assert float(best["value"]) == 600.0 and float(best["paper"]) == 625.0
    assert best["cell"] == "c.M8.best_of_m.nelbo.J4"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_report(tmp_path / "records", tmp_path / "report", figures=False)
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="no record"):
        write_report(tmp_path / "empty", tmp_path / "report")


def test_renderings_hold_the_same_figures() -> None:
    table = bestofn(120.0)
    assert "183.0 (4.50)" in markdown(table, "c") and "183.0 (4.50)" in latex(table, "50% c_d")
    assert r"50\% c\_d" in latex(table, "50% c_d")
    lines = list(csv.reader(io.StringIO(long_csv(table))))
    assert len(lines) == 1 + len(table.rows)


def test_the_paper_s_numbers_are_whole_and_agree_where_the_paper_repeats_them() -> None:
    for corpus, rows in paper.MAIN.items():
        assert set(rows) == set(paper.MAIN_REST[corpus])
        assert all(len(values) == len(paper.J_GRID) for values in rows.values())
        for label, repeated in (("LKF M=4", "best-of-4"), ("LKF M=8", "best-of-8")):
            assert rows[label] == paper.COMMIT_M[corpus][repeated]
        assert rows["LKF M=1"] == paper.COMMIT_M[corpus]["M=1, one chain"]
    for label, pairs in paper.BEST_OF_N.items():
        assert len(pairs) == len(paper.J_GRID), label
    mixture, single = paper.BEST_OF_N["LKF M=8, 8 components"], "LKF M=1, 8 noise draws"
    assert mixture == paper.POLICY_NFE[8]["best-of-M, NELBO"]
    gains = [1 - m[0] / s[0] for m, s in zip(mixture, paper.BEST_OF_N[single], strict=True)]
    for gain, printed in zip(gains[1:], paper.ADVANTAGE[1:], strict=True):
        assert gain == pytest.approx(printed, abs=0.006)
    # at J = 1 the better single-component arm is MDLM's
    assert 1 - 1791 / 1992 == pytest.approx(paper.ADVANTAGE[0], abs=0.006)
    assert paper.DECODE["M components, independent noise | NELBO"][8] == mixture[-1]
