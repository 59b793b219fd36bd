"""Few steps, shares of components and colours of blocks on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lkf_plugin.report.html import _sample
from lkf_plugin.report.latent_sections import components_section, few_step_section, in_blocks
from lkf_plugin.report.runs import Run, SideBySide


def run_named(name: str, likelihoods: list[dict[str, Any]] | None = None) -> Run:
    return Run(name, {"model.num_components": 4}, [], 5, likelihoods or [], [])


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "se": 0.1, "n": 8}


def test_few_steps_are_drawn_and_tabled() -> None:
    told = {"nll@1": figure(3.5), "nll@8": figure(2.25), "nll_frozen@8": figure(2.5),
            "nelbo": figure(9.0)}  # fmt: skip
    evaluated = run_named("a <b>", [{"likelihood": told, "num_components": 4}])
    side = SideBySide([evaluated, run_named("c")], [])
    text = few_step_section(side)
    assert text.count("<figcaption>Few-step NELBO") == 1 and text.count("<table") == 1
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    name = "a &lt;b&gt;"
    assert cells[:4] == [name, "redrawn", "3.5000 ± 0.1000", "2.2500 ± 0.1000"]
    assert cells[4:] == [name, "frozen", "", "2.5000 ± 0.1000"]
    assert few_step_section(SideBySide([run_named("c")], [])) == ""


def test_bars_are_the_shares(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "samples"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(json.dumps({"policy": "best_of_m", "sampling_steps": 2}))
    rows = [{"text": "t", "component": k} for k in (0, 3, 3, 3)]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = components_section(SideBySide([run_named("a")], []), tmp_path)
    widths = re.findall(r'class="bar (s\d)" style="width:([\d.]+)%"', text)
    assert widths == [("s0", "25.0"), ("s1", "0.0"), ("s2", "0.0"), ("s3", "75.0")]
    assert "best_of_m, J = 2, 4 samples" in text and ">0.750<" in text
    (tmp_path / "c").mkdir()
    assert components_section(SideBySide([run_named("c")], []), tmp_path) == ""


def test_blocks_have_their_own_colours() -> None:
    row = {"text": "ab <cd>", "component": 1, "blocks": [[2, "ab"], [9, "<cd>"]]}
    text = _sample(row)
    assert 'class="sample s1"' in text and "component 1, blocks 2 9" in text
    assert '<span class="block s2" title="component 2">ab</span>' in text
    assert '<span class="block s1" title="component 9">&lt;cd&gt;</span>' in text
    assert "block" not in _sample({"text": "ab", "component": 1})
    assert "component not noted" in _sample({"text": "ab"})
    assert "component" not in _sample({"text": "ab"}, several=False)


@pytest.mark.parametrize("most, left", [(3, "ab c…"), (9, "ab cd")])
def test_long_texts_are_cut(most: int, left: str) -> None:
    shown = in_blocks([(0, "ab"), (1, "cd")], most, 8)
    assert re.sub(r"<[^>]*>", "", shown).replace(" …", "…") == left
