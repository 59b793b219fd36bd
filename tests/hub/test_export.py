"""An exported run computes, samples and trains in a process without this package."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lkf_plugin.errors import UserError
from lkf_plugin.hub import export as hub_export
from lkf_plugin.hub.bring_back import import_export
from lkf_plugin.hub.command import main
from lkf_plugin.hub.export import export_run
from lkf_plugin.objective.draws import HostDraws
from lkf_plugin.runs.load import LoadedRun, load_run
from tests.evaluate.small_run import TINY, train

SCRIPT = Path(__file__).parents[2] / "scripts" / "import_checkpoint.py"
J = 4
QUICK = (*TINY, "trainer.max_steps=2", "trainer.val_check_interval=2", "loader.batch_size=4")
MATCHED = ("model.trunk=matched", "time_conditioning=false")
RUNS = {
    "native": (*QUICK, "model.num_components=3", "model.latent_blocks=1"),
    "matched": (*QUICK, *MATCHED, "model.num_components=2", "model.latent_blocks=2"),
    "mdlm": (*QUICK, "model=tiny", "loss=mdlm", "~model.trunk", "~model.open_gates"),
}
SAMPLES: dict[str, dict[str, Any]] = {
    "commit": {"policy": "commit"},
    "best_of_m": {"policy": "best_of_m", "score_draws": 3},
    "evidence": {"policy": "best_of_m", "selector": "evidence", "temperature": 0.9},
}


@dataclass
class Exported:
    """A run, its export, and what the bare process answered."""

    run: LoadedRun
    folder: Path
    out: Path
    asked: dict[str, Any]
    answered: dict[str, Any]


def scramble(folder: Path) -> None:
    """Moves every weight, so that no zero start hides a mistake; the average differs, too."""
    torch.manual_seed(0)
    for path in (folder / "checkpoints").glob("*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        for name, tensor in checkpoint["state_dict"].items():
            if "inv_freq" not in name:
                tensor += 0.2 * torch.randn_like(tensor)
        for shadow in checkpoint["ema"]["shadow_params"]:
            shadow += 0.2 * torch.randn_like(shadow)
        path.unlink()
        torch.save(checkpoint, path)


def question(run: LoadedRun, out: Path, saved: Path) -> dict[str, Any]:
    """Noisy tokens, their noise and what is to be sampled."""
    generator = torch.Generator().manual_seed(3)
    clean = torch.randint(0, 80, (3, 32), generator=generator)
    hidden = torch.rand(3, 32, generator=generator) < 0.5
    mask = run.module.mask_index
    prompt = torch.where(hidden[0], mask, clean[0])
    samples = {
        name: {**one, "num_samples": 3, "num_steps": J, "seed": 7} for name, one in SAMPLES.items()
    }
    samples["prompt"] = {**samples["best_of_m"], "input_ids": prompt}
    return {
        "folder": str(out), "saved": str(saved), "x": torch.where(hidden, mask, clean),
        "clean": clean, "sigma": torch.tensor([0.2, 0.7, 1.9]), "samples": samples, "raw": True,
    }  # fmt: skip


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """All runs of ``RUNS``, asked in one bare process, in another folder."""
    root = tmp_path_factory.mktemp("hub")
    made: dict[str, tuple[LoadedRun, Path, Path]] = {}
    asked = {}
    for name, overrides in RUNS.items():
        folder, out = train(root / name, root / "cache", *overrides), root / f"{name}-out"
        scramble(folder)
        assert main([str(folder), str(out)]) == 0
        run = load_run(folder)
        made[name] = (run, folder, out)
        asked[name] = question(run, out, root / f"{name}-saved")
    torch.save(asked, root / "asked.pt")
    script = Path(__file__).with_name("in_bare_process.py")
    away = root / "away"
    away.mkdir()
    environment = {**os.environ, "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-I", str(script), str(root / "asked.pt"), str(root / "answered.pt")]
    subprocess.run(command, cwd=away, env=environment, check=True, timeout=540)
    answered = torch.load(root / "answered.pt", weights_only=True)
    return {name: Exported(*made[name], asked[name], answered[name]) for name in RUNS}


@pytest.fixture(params=list(RUNS))
def exported(request: pytest.FixtureRequest, exports: dict[str, Exported]) -> Exported:
    return exports[request.param]


def near(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


def test_logits_are_ours_to_rounding(exported: Exported) -> None:
    module, asked = exported.run.module, exported.asked
    sigma = module._process_sigma(asked["sigma"])
    with torch.no_grad():
        near(exported.answered["logits"], module.backbone(asked["x"], sigma))
        raw = load_run(exported.folder)
        raw.module.load_state_dict(torch.load(raw.checkpoint, weights_only=True)["state_dict"])
        ours = raw.module.backbone(asked["x"], sigma)
    near(exported.answered["raw_logits"], ours)
    assert not torch.allclose(ours, exported.answered["logits"], atol=1e-2)
    assert exported.answered["training"] is False


def test_losses_are_ours(exports: dict[str, Exported]) -> None:
    for name in ("native", "matched"):
        exported = exports[name]
        module, clean = exported.run.module, exported.asked["clean"]
        attention = torch.ones_like(clean)
        torch.manual_seed(5)
        with torch.no_grad():
            corruption = module.bound.corrupt(clean, attention, HostDraws(module))
            scores = module.bound.score(module.backbone, corruption)
            value = module.bound.loss(scores, corruption)
        near(exported.answered["drawn_loss"], value.loss)


@pytest.mark.parametrize("name", [*SAMPLES, "prompt"])
def test_samples_are_ours(exports: dict[str, Exported], name: str) -> None:
    for kind in ("native", "matched"):
        exported = exports[kind]
        x_GL, component_G, score_GM = exported.answered[name]
        settings = SAMPLES.get(name, SAMPLES["best_of_m"])
        run = exported.run
        if name == "prompt":
            run.module.prompt_ids = exported.asked["samples"]["prompt"]["input_ids"]
        try:
            ours = run.sample(settings, J, 3, 7)
        finally:
            run.module.prompt_ids = None
        assert torch.equal(x_GL, ours.x_GL) and torch.equal(component_G, ours.component_G)
        if score_GM is not None:
            torch.testing.assert_close(score_GM, ours.score_GC, rtol=1e-5, atol=1e-5)
        assert (x_GL != run.module.mask_index).all()


def test_it_trains_and_saves_there(exported: Exported) -> None:
    before, after = exported.answered["trained"]
    assert after < before and torch.isfinite(after)
    near(exported.answered["saved_loss"], after)
    assert exported.answered["text"] == exported.run.prepared.tokenizer.decode(
        exported.asked["clean"][0]
    )


def test_the_way_back_is_whole(exported: Exported, tmp_path: Path) -> None:
    overrides = import_export(exported.out, tmp_path / "back.ckpt")
    assert "training.ema=0" not in overrides and "model.hidden_size=16" in overrides
    old = torch.load(exported.run.checkpoint, weights_only=True)
    new = torch.load(tmp_path / "back.ckpt", weights_only=True)
    assert old["state_dict"].keys() == new["state_dict"].keys()
    assert all(torch.equal(old["state_dict"][n], t) for n, t in new["state_dict"].items())
    pairs = zip(old["ema"]["shadow_params"], new["ema"]["shadow_params"], strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert old["lkf_card"] == new["lkf_card"] and new["global_step"] == 2
    # trained on and saved elsewhere: new weights, and no average of the old ones
    saved = Path(exported.asked["saved"])
    again = import_export(saved, tmp_path / "saved.ckpt")
    assert "training.ema=0" in again
    other = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    assert "ema" not in other
    same = [torch.equal(old["state_dict"][n], t) for n, t in other["state_dict"].items()]
    assert not all(same)


def run_script(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``scripts/import_checkpoint.py SOURCE TARGET``."""
    module = runpy.run_path(str(SCRIPT))
    capsys.readouterr()
    assert module["main"]([str(source), str(target)]) == 0
    assert "model.num_components=3" in capsys.readouterr().out


def test_an_imported_mixture_trains_on_and_resumes(
    exports: dict[str, Exported], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = exports["native"]
    back = tmp_path / "back.ckpt"
    run_script(exported.out, back, capsys)
    start = (*RUNS["native"], f"init.from_checkpoint={back}", "optim.lr=0", "optim.weight_decay=0")
    cache = exported.folder.parent / "cache"
    folder = train(tmp_path / "on", cache, *start)
    still = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    averages = torch.load(back, weights_only=True)["ema"]["shadow_params"]
    backbone = exported.run.module.backbone
    for (name, _), shadow in zip(backbone.named_parameters(), averages, strict=True):
        assert torch.equal(still[f"backbone.{name}"], shadow)  # router and latent, too
    train(folder, cache, *start, "trainer.max_steps=3")
    last = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 3


def test_the_card_says_what_was_trained(exported: Exported) -> None:
    text = (exported.out / "README.md").read_text()
    settings = yaml.safe_load((exported.folder / "config.yaml").read_text())
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "transformers" and "custom_code" in front["tags"]
    M = settings["model"].get("num_components", 1)
    assert f"| components M | {M} |" in text and "| trained steps | 2 |" in text
    assert "Nothing was measured" in text and "python main.py" in text
    assert str(exported.folder.parent) not in text
    config = json.loads((exported.out / "config.json").read_text())
    assert str(exported.folder.parent) not in json.dumps(config)


def test_mistakes_are_one_sentence(
    exports: dict[str, Exported], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exports["native"].folder
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    for run, out, sentence in (
        (folder, tmp_path / "full", "is not empty"),
        (tmp_path, tmp_path / "out", "is no run folder"),
        (folder, tmp_path / "full" / "x", "is not empty"),
    ):
        assert main([str(run), str(out)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and sentence in error
    assert (tmp_path / "full" / "x").read_text() == "mine"


def test_a_baseline_is_refused(exports: dict[str, Exported], tmp_path: Path) -> None:
    source, folder = exports["mdlm"].folder, tmp_path / "sedd"
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint = torch.load(source / "checkpoints" / "last.ckpt", weights_only=True)
    checkpoint["lkf_card"]["method"]["name"] = "sedd"
    torch.save(checkpoint, folder / "checkpoints" / "last.ckpt")
    settings = yaml.safe_load((source / "config.yaml").read_text())
    settings["method"] = {"name": "sedd", "float64_draws": True}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(UserError, match="method=sedd"):
        export_run(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_uploaded_unless_asked(
    exports: dict[str, Exported], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    calls: list[tuple[str, Any]] = []

    class Api:
        def create_repo(self, repository: str, exist_ok: bool) -> None:
            calls.append(("create", repository))

        def upload_folder(self, repo_id: str, folder_path: Path) -> None:
            if repo_id == "no/such":
                raise OSError("401 Unauthorized")
            calls.append((repo_id, sorted(path.name for path in folder_path.iterdir())))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    folder = str(exports["matched"].folder)
    assert main([folder, str(tmp_path / "quiet")]) == 0 and calls == []
    assert main([folder, str(tmp_path / "loud"), "--push", "me/model"]) == 0
    assert calls[0] == ("create", "me/model") and "config.json" in calls[1][1]
    assert {hub_export.WEIGHTS, hub_export.RAW, hub_export.MODELLING} <= set(calls[1][1])
    assert main([folder, str(tmp_path / "refused"), "--push", "no/such"]) == 2
    assert "401 Unauthorized" in capsys.readouterr().err
