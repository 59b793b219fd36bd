"""The model ``lkf`` under lm-evaluation-harness itself."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lkf_plugin.errors import UserError
from lkf_plugin.harness.command import main, with_model
from lkf_plugin.harness.scoring import Scorer
from lkf_plugin.runs.load import LoadedRun

pytest.importorskip("lm_eval", reason="lm-evaluation-harness: pip install 'lkf-plugin[harness]'")

from lkf_plugin.harness.adapter import LKFHarness  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path(run: LoadedRun) -> str:
    return str(run.checkpoint.parent.parent)


@pytest.fixture(scope="module")
def model(path: str) -> LKFHarness:
    return LKFHarness(path, device="cpu", draws=4, seed=2)


def texts(run: LoadedRun) -> list[str]:
    rows = run.prepared.valid[:3]["input_ids"]
    return run.prepared.tokenizer.batch_decode(rows)


def asked(*args: Any) -> list[Any]:
    return [SimpleNamespace(args=one) for one in args]


def test_a_request_is_its_pieces(model: LKFHarness, run: LoadedRun) -> None:
    words = texts(run)[0].split(" ")
    request = (" ".join(words[:8]), " " + " ".join(words[8:12]))
    ((nats, greedy),) = model.loglikelihood(asked(request), disable_tqdm=True)
    (one,) = Scorer(run, model.options).scores(list(model.framing.pieces(*request)))
    assert nats == pytest.approx(one.nats, rel=1e-9) and greedy == one.greedy
    text = (" ".join(words[:12]),)
    (rolling,) = model.loglikelihood_rolling(asked(text), disable_tqdm=True)
    ((alone, _),) = model.loglikelihood(asked(("", *text)), disable_tqdm=True)
    assert rolling == alone


def test_an_answer_goes_on_from_its_context_and_ends_at_a_stop(model, run: LoadedRun) -> None:
    words = texts(run)[1].split(" ")
    context = " ".join(words[:10])
    settings = {"until": [], "max_gen_toks": 12}
    first, again, other = model.generate_until(
        asked((context, settings), (context, settings), (" ".join(words[:11]), settings)),
        disable_tqdm=True,
    )
    assert first == again != other and len(first.split(" ")) == 12
    stop = first.split(" ")[4]
    (cut,) = model.generate_until(asked((context, {**settings, "until": stop})), disable_tqdm=True)
    assert cut == first[: first.index(stop)]


def test_answers_are_asked_for_with_places(model: LKFHarness) -> None:
    with pytest.raises(UserError, match="max_gen_toks=0"):
        model.generate_until(asked(("", {"max_gen_toks": 0})))


def test_mistakes_are_told_before_any_request(path: str) -> None:
    with pytest.raises(UserError, match="policy=greedy"):
        LKFHarness(path, device="cpu", policy="greedy")
    with pytest.raises(UserError, match="no run folder"):
        LKFHarness("nowhere", device="cpu")


def test_the_model_is_named_where_none_is() -> None:
    assert with_model(["--tasks", "a"]) == ["run", "--model", "lkf", "--tasks", "a"]
    assert with_model(["run", "--model", "hf"]) == ["run", "--model", "hf"]
    assert with_model(["ls", "tasks"]) == ["ls", "tasks"] and with_model(["-h"]) == ["-h"]


@pytest.mark.slow  # reads the harness's own tasks
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_tasks(tmp_path, ["one two three four five"])
    arguments = ["--model_args", "path=nowhere", "--tasks", "choose", "--include_path", tmp_path]
    assert main([str(word) for word in arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: nowhere is no run folder")


# --- the harness's own command, in one process and in two -----------------------------------------


def write_tasks(folder: Path, lines: list[str]) -> None:
    """Three tasks over local files: choices, perplexity, and an answer to be generated."""
    rows = []
    for number, line in enumerate(lines):
        words = line.split(" ")
        rest = " ".join(words[-4:])
        wrong = " ".join([*words[-3:], words[-4]])
        rows.append({"text": line, "start": " ".join(words[:-4]), "ends": [rest, wrong],
                     "right": 0, "number": number})  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f"dataset_path: json\ndataset_kwargs: {{data_files: {folder / 'rows.jsonl'}}}\n"
    source += "test_split: train\n"
    (folder / "choose.yaml").write_text(
        f"task: choose\n{source}output_type: multiple_choice\ndoc_to_text: '{{{{start}}}}'\n"
        "doc_to_choice: '{{ends}}'\ndoc_to_target: right\n"
    )
    (folder / "roll.yaml").write_text(
        f"task: roll\n{source}output_type: loglikelihood_rolling\ndoc_to_text: ''\n"
        "doc_to_target: '{{text}}'\nmetric_list: [{metric: word_perplexity}]\n"
    )
    (folder / "say.yaml").write_text(
        f"task: say\n{source}output_type: generate_until\ndoc_to_text: '{{{{start}}}}'\n"
        "doc_to_target: '{{ends[0]}}'\ngeneration_kwargs: {until: ['.'], max_gen_toks: 4}\n"
        "metric_list: [{metric: exact_match}]\n"
    )


def harness(path: str, folder: Path, out: str, processes: int) -> dict[str, Any]:
    """Figures and samples that the command wrote."""
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}",
                "--master_port=29731"]  # fmt: skip
    command = [*(launcher if processes > 1 else [sys.executable]), "-m", "lkf_plugin.harness"]
    command += ["--model_args", f"path={path},draws=2", "--tasks", "choose", "roll", "say",
                "--include_path", str(folder), "--output_path", str(folder / out),
                "--log_samples", "--device", "cpu"]  # fmt: skip
    place = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | place, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (results,) = (folder / out).rglob("results_*.json")
    found = json.loads(results.read_text())
    rows = {}
    for file in (folder / out).rglob("samples_*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            task = file.name.split("_")[1]
            rows[task, line["doc"]["number"]] = line["filtered_resps"]
    return {"results": found["results"], "config": found["config"], "rows": rows}


@pytest.mark.slow
def test_the_command_gives_the_same_figures_in_two_processes(
    path: str, run: LoadedRun, tmp_path: Path
) -> None:
    lines = texts(run)
    write_tasks(tmp_path, lines)
    one, two = harness(path, tmp_path, "one", 1), harness(path, tmp_path, "two", 2)
    assert len(one["rows"]) == 9 and set(one["rows"]) == set(two["rows"])
    for place, answers in one["rows"].items():
        assert json.dumps(answers) == json.dumps(two["rows"][place]), place
    for task, figures in one["results"].items():
        for name, value in figures.items():
            other = two["results"][task][name]
            number = isinstance(value, float)
            assert other == (pytest.approx(value, rel=1e-6) if number else value), (task, name)
    assert one["config"]["model_num_components"] == run.config.model.num_components
    # the perplexity per word is that of the same texts, scored by hand
    model = LKFHarness(path, device="cpu", draws=2)
    nats = sum(model.loglikelihood_rolling(asked(*((line,) for line in lines)), True))
    words = sum(len(line.split()) for line in lines)
    figure = one["results"]["roll"]["word_perplexity,none"]
    assert figure == pytest.approx(math.exp(-nats / words), rel=1e-6)
