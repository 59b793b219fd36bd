"""Tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from experiments.tables.table import Entry, Table, is_likelihood
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record

MARK = "!"
_LEGEND = (
    f"A figure is followed by H, the unigram entropy of a sample in nats, in parentheses. {MARK} "
    "marks an advantage over M = 1 that is gone when the favourite component is dropped."
)


def number(value: float | None) -> str:
    """Four significant digits at most, without an exponent below a million."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def given(value: float | None) -> str:
    """A number as it was given: whole ones without decimals."""
    return number(value) if value is None or value != int(value) else f"{value:.0f}"


def _ours(entry: Entry) -> str:
    if entry.measured is None:
        return "-"
    text = number(entry.measured.value)
    if entry.deviation is not None:
        text += f" ± {number(entry.deviation)}"
    if entry.entropy is not None:
        text += f" ({entry.entropy:.2f})"
    if entry.calls is not None:
        text += f" {entry.calls:.4g}c"
    if entry.seeds > 1:
        text += f" {entry.seeds}s"
    return text + (f" {MARK}" if entry.flagged else "")


def _paper(entry: Entry) -> str:
    text = given(entry.paper)
    return text if entry.paper_entropy is None else f"{text} ({entry.paper_entropy:.2f})"


def _has_paper(table: Table) -> list[bool]:
    """Which columns the paper has a number in."""
    return [
        any(entries[i].paper is not None for _, _, entries in table.rows)
        for i in range(len(table.columns))
    ]


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    shown = _has_paper(table)
    head = ["", "calls"]
    for column, paper in zip(table.columns, shown, strict=True):
        head += [column, "paper"] if paper else [column]
    body = []
    for label, calls, entries in table.rows:
        line = [label, calls]
        for entry, paper in zip(entries, shown, strict=True):
            line += [_ours(entry), _paper(entry)] if paper else [_ours(entry)]
        body.append(line)
    return head, body


def markdown(table: Table, caption: str) -> str:
    """A heading, the table, and what it depends on."""
    head, body = _cells(table)
    lines = [f"## {table.name}: {table.title}", ""]
    lines.append(markdown_table(head, [[cell.replace("|", "/") for cell in row] for row in body]))
    return "\n".join([*lines, "", " ".join([*table.notes, _LEGEND, caption]), ""])


def latex(table: Table, caption: str) -> str:
    """A table environment that needs booktabs."""
    head, body = _cells(table)
    columns = "ll" + "r" * (len(head) - 2)
    lines = [
        r"\begin{table}[h]",
        r"\centering\small",
        rf"\caption{{{_escape(f'{table.title}. {caption}')}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_escape, head)) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(map(_escape, row)) + r" \\" for row in body]
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def _escape(text: str) -> str:
    out = text
    for plain, escaped in (
        ("\\", r"\textbackslash{}"), ("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("#", r"\#"),
        ("{", r"\{"), ("}", r"\}"), ("|", "/"), ("$", r"\$"), ("^", r"\^{}"),
    ):  # fmt: skip
        out = out.replace(plain, escaped) if plain not in "\\{}" else out
    return out


def long_csv(table: Table) -> str:
    """One line a place: figure, error, entropy, calls, the paper's, and the record's name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        "table row column value se deviation seeds entropy calls network_calls samples flagged "
        "paper paper_entropy cell".split()
    )
    for label, _, entries in table.rows:
        for column, entry in zip(table.columns, entries, strict=True):
            record, figure = entry.record, entry.measured
            writer.writerow(
                [
                    table.name,
                    label,
                    column,
                    "" if figure is None else figure.value,
                    "" if figure is None or figure.se is None else figure.se,
                    _blank(entry.deviation),
                    "" if figure is None else entry.seeds,
                    _blank(entry.entropy),
                    _blank(record.value("calls") if record else None),
                    _blank(record.value("network_calls") if record else None),
                    _blank(record.samples if record else None),
                    int(entry.flagged),
                    _blank(entry.paper),
                    _blank(entry.paper_entropy),
                    "" if record is None else record.name,
                ]
            )
    return out.getvalue()


def _blank(value: object) -> object:
    return "" if value is None else value


def caption(records: Sequence[Record], metric: str | None, higher_is_better: bool) -> str:
    """What every figure of a corpus depends on."""
    first = next((r for r in records if not is_likelihood(r)), records[0])
    direction = "higher is better" if higher_is_better else "lower is better"
    label, dtype = first.setting("judge.label"), first.setting("judge.dtype")
    judge = f"judge {label} ({dtype})" if label else "no judge model"
    trained = sorted({str(r.labels.get("trained_steps")) for r in records})
    return (
        f"Figure: {metric or 'none'} ({direction}); the paper's numbers are gen-PPL under "
        f"GPT-2-large. Corpus {first.corpus}, L={first.setting('length')}, "
        f"wrap={first.labels.get('wrap')}, tokenizer {first.labels.get('tokenizer')}, "
        f"{first.samples} samples per cell, {judge}, EMA {first.setting('ema')}, "
        f"{first.precision}, seed {first.setting('seed')}, trained for {', '.join(trained)} steps, "
        f"code {first.code}."
    )


BESIDE = (
    "entropy", "pooled_entropy", "judge_entropy", "distinct_1", "distinct_2", "self_bleu",
    "digit_share", "punctuation_share", "configuration_entropy", "share_entropy",
)  # fmt: skip


def beside(records: Sequence[Record], metric: str | None) -> str:
    """Every cell with all that must be read beside its figure, as Markdown."""
    held = {name for record in records for name in record.metrics}
    columns = [name for name in ((metric,) if metric else ()) + BESIDE if name in held]
    columns += sorted(name for name in held if name.startswith("mauve["))
    head = ["cell", "calls", "run", *columns]
    rows = []
    for record in records:
        if "entropy" not in record.metrics:
            continue
        values = [record.metrics.get(name) for name in columns]
        cells = [
            record.name,
            given(record.value("calls")),
            number(record.value("network_calls")),
            *(number(None if v is None else v.value) for v in values),
        ]
        rows.append(cells)
    ceiling = next(
        (r.metrics["entropy_ceiling"].value for r in records if "entropy_ceiling" in r.metrics),
        None,
    )
    note = "" if ceiling is None else f" A sequence's entropy is at most {ceiling:.3f} nats (ln L)."
    explained = "calls: by the method's own count; run: evaluations that were needed."
    return f"## every cell\n\n{markdown_table(head, rows)}\n\n{explained}{note}\n"
