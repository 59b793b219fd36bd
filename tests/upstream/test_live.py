"""The plugin inside a real, unmodified MDLM checkout, on a CPU."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.cli import run as run_config
from lkf_plugin.corpora import agreetext
from lkf_plugin.data import prepare
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import import_checkpoint
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.common import build_module
from lkf_plugin.upstream import checkout as mdlm_checkout
from lkf_plugin.upstream import module as mdlm_module
from lkf_plugin.upstream import run as mdlm
from tests.host.contract import missing

if mdlm_checkout.find_checkout() is None:
    pytest.skip("no MDLM checkout: set MDLM_HOME or fetch external/mdlm", allow_module_level=True)

MODELS = ("plain", "M1", "M8")
ROOT = Path(__file__).parents[2]
UNIFORM = math.log(len(agreetext.words()))  # nats per token of a model that has learned nothing


def last(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


def logged(folder: Path, column: str) -> dict[int, float]:
    with (folder / "metrics.csv").open(newline="") as file:
        return {int(r["step"]): float(r[column]) for r in csv.DictReader(file) if r[column]}


def modules_on_both_hosts(config):
    """The same configuration's module in MDLM and on the built-in host, made from one seed."""
    upstream, hosted, prepared = mdlm._set_up(config)
    tokenizer = upstream.dataloader.get_tokenizer(hosted)
    with mdlm_module.plugged_in(upstream, hosted, prepared.mask_index) as chosen:
        torch.manual_seed(5)
        theirs = chosen(hosted, tokenizer)
    torch.manual_seed(5)
    ours = build_module(config, prepared.tokenizer)
    return theirs, ours, prepared


def shake(*modules) -> None:
    """Move all weights away from their start by the same noise: MDLM starts with a zero head."""
    for module in modules:
        generator = torch.Generator().manual_seed(11)
        for parameter in module.backbone.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.data.add_(noise, alpha=0.2)
        if module.ema:
            live = [p for p in module.backbone.parameters() if p.requires_grad]
            module.ema.shadow_params = [p.detach().clone() for p in live]


# --- the seams ---------------------------------------------------------------------------------


def test_this_is_the_pinned_commit(checkout):
    assert mdlm_checkout.source_digest(checkout) == mdlm_checkout.PINNED_DIGEST


def test_nothing_numeric_is_overridden_and_nothing_stays_rebound(trained, checkout):
    upstream = mdlm_checkout.load_upstream(checkout)
    assert upstream.models.dit.DIT.__module__ == "models.dit"
    assert upstream.diffusion.Diffusion.__module__ == "diffusion"
    assert upstream.dataloader.get_dataloaders.__module__ == "dataloader"
    safe = mdlm_module.safe_diffusion(upstream)
    assert safe.__bases__ == (upstream.diffusion.Diffusion,)
    own = {name for name in vars(safe) if name not in ("__module__", "__doc__")}
    assert own - {"__qualname__", "__firstlineno__", "__static_attributes__"} == set(
        (*mdlm_module.OVERRIDDEN, *mdlm_module.ADDED)
    )
    assert not set(mdlm_module.ADDED) & set(dir(upstream.diffusion.Diffusion))


@pytest.mark.parametrize(
    "override, sentence",
    [
        ("backbone=dimamba", "backbone=dit"),
        ("backbone=hf_dit", "GPU"),
        ("optim.name=muon", "host=builtin"),
        ("sampling.prompt='the [MASK]'", "sampling.prompt"),
        ("lr_scheduler._target_=utils.CosineDecayWarmupLRScheduler", "pip install timm"),
    ],
)
def test_what_mdlm_cannot_do_is_refused(checkout, tiny_config, tmp_path, override, sentence):
    with pytest.raises(UserError, match=sentence):
        run_config(tiny_config("plain", tmp_path, override))


# --- training, resuming, evaluating ------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_training_logs_and_saves(trained, model):
    folder = trained[model]
    nll = logged(folder, "val/nll")
    assert sorted(nll) == [3, 6] and nll[6] < UNIFORM
    assert len(logged(folder, "trainer/loss")) == 6
    checkpoint = read_checkpoint(last(folder))
    assert checkpoint["global_step"] == 6 and "hyper_parameters" not in checkpoint
    assert (folder / "config.yaml").is_file() and (folder / "config_tree.txt").is_file()
    assert json.loads((folder / "run.json").read_text())["host"] == "mdlm"


def test_one_component_is_mdlm_to_the_last_digit(trained):
    plain, single = (read_checkpoint(last(trained[model])) for model in ("plain", "M1"))
    for name, weight in plain["state_dict"].items():
        inside = name.replace("backbone.", "backbone.trunk.")
        assert torch.equal(single["state_dict"][inside], weight), name
    assert (trained["M1"] / "metrics.csv").read_bytes() == (
        trained["plain"] / "metrics.csv"
    ).read_bytes()


def test_eight_components_are_not_mdlm(trained):
    assert logged(trained["M8"], "val/nll") != logged(trained["plain"], "val/nll")


@pytest.mark.parametrize("model", MODELS)
def test_training_resumes(trained, tiny_config, tmp_path, model):
    folder = tmp_path / "run"
    shutil.copytree(trained[model], folder)
    before = logged(folder, "trainer/loss")
    run_config(tiny_config(model, folder, "trainer.max_steps=9"))
    after = logged(folder, "trainer/loss")
    assert sorted(after) == list(range(1, 10)) and sorted(logged(folder, "val/nll")) == [3, 6, 9]
    assert {step: after[step] for step in before} == before
    assert read_checkpoint(last(folder))["ema"]["num_updates"] == 9


def test_resuming_with_other_settings_is_refused(trained, tiny_config, tmp_path):
    shutil.copytree(trained["plain"], tmp_path / "run")
    with pytest.raises(UserError, match=r"model\.dropout was 0\.1"):
        run_config(tiny_config("plain", tmp_path / "run", "model.dropout=0.2"))


def kept(folder: Path, name: str) -> list[Record]:
    """Records of a run by name."""
    return [one for one in read_records(folder / "records") if one.name == name]


def test_likelihood_is_evaluated(trained, tiny_config):
    found = {}
    for model in MODELS:
        metrics = (trained[model] / "metrics.csv").read_bytes()
        path = f"eval.checkpoint_path={last(trained[model])}"
        report = run_config(tiny_config(model, trained[model], "mode=ppl_eval", path))
        found[model] = report["metrics"]["val/nll"]
        assert report == json.loads((trained[model] / "ppl_eval.json").read_text())
        assert report["host"] == "mdlm" and report["step"] == 6 and report["ema"] is True
        assert report["metrics"]["val/ppl"] == pytest.approx(math.exp(found[model]))
        assert (trained[model] / "metrics.csv").read_bytes() == metrics
        name = "mdlm" if model == "plain" else model
        (record,) = kept(trained[model], f"agreetext.{name}.likelihood")
        assert record.subject["host"] == "mdlm" and record.samples == 16
        assert record.metrics["nelbo"].value == found[model] and record.metrics["nelbo"].se > 0
    assert found["M1"] == found["plain"] != found["M8"]


def test_the_average_can_be_left_out(trained, tiny_config):
    overrides = ("mode=ppl_eval", "eval.disable_ema=true")
    report = run_config(tiny_config("plain", trained["plain"], *overrides))
    averaged = logged(trained["plain"], "val/nll")[6]
    assert report["ema"] is False and report["metrics"]["val/nll"] != averaged


def test_samples_are_drawn_and_judged(trained, tiny_config, judge):
    reports, texts = {}, {}
    for model in MODELS:
        config = tiny_config(
            model,
            trained[model],
            "mode=sample_eval",
            "eval.compute_generative_perplexity=true",
            f"eval.gen_ppl_eval_model_name_or_path={judge}",
        )
        reports[model] = run_config(config)
        texts[model] = (trained[model] / "samples.jsonl").read_text()
        assert reports[model]["num_samples"] == 8 and reports[model]["host"] == "mdlm"
        rows = [json.loads(line) for line in texts[model].splitlines()]
        mask = prepare(config, splits=("valid",)).mask_index
        assert all(len(row["ids"]) == 32 and mask not in row["ids"] for row in rows)
        assert 1 < reports[model]["metrics"]["gen_ppl"] < 1e4
        name = {"plain": "mdlm.own", "M1": "M1.mdlm", "M8": "M8.best_of_m.nelbo"}[model]
        (record,) = kept(trained[model], f"agreetext.{name}.J6")
        assert record.subject["host"] == "mdlm" and record.samples == 8 and record.steps == 6
        draws = "float64" if model == "M8" else "float32"
        assert record.precision == f"network 32-true, draws {draws}"
        assert record.method == ("mdlm" if model == "plain" else "lkf")
    assert texts["M1"] == texts["plain"] != texts["M8"]
    assert reports["M1"]["metrics"] == reports["plain"]["metrics"]


def test_mdlm_judges_while_it_validates(checkout, tiny_config, tmp_path, judge):
    config = tiny_config(
        "M8",
        tmp_path,
        "trainer.max_steps=3",
        "eval.generate_samples=true",
        "eval.compute_generative_perplexity=true",
        f"eval.gen_ppl_eval_model_name_or_path={judge}",
    )
    run_config(config)
    assert logged(tmp_path, "val/gen_ppl")[3] > 1


def test_text8_goes_through_mdlms_own_tokenizer(checkout, tiny_config, tmp_path):
    text = "the quick brown fox jumps over the lazy dog " * 40
    for split in ("train", "validation", "test"):
        (tmp_path / f"text8.{split}.txt").write_text(text)
    corpus = ("data=text8", f"data.path={tmp_path}", "model.length=32")
    run_config(tiny_config("M8", tmp_path / "run", "trainer.max_steps=3", corpus=corpus))
    assert logged(tmp_path / "run", "val/nll")[3] < 5


# --- the built-in host against MDLM, bit for bit -----------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_hosts_have_the_same_schedule(checkout, tiny_config, tmp_path, dtype):
    theirs, ours, _ = modules_on_both_hosts(tiny_config("plain", tmp_path))
    u = torch.cat((torch.linspace(0, 1, 4096, dtype=dtype), torch.rand(4099, dtype=dtype)))
    for mine, wanted in zip(ours.noise(u), theirs.noise(u), strict=True):
        assert torch.equal(mine, wanted)
    wanted = theirs.noise.importance_sampling_transformation(u)
    assert torch.equal(ours.noise.importance_times(u), wanted)
    assert torch.equal(ours.noise.sigma_min, theirs.noise.sigma_min)
    assert torch.equal(ours.noise.sigma_max, theirs.noise.sigma_max)


@pytest.mark.parametrize("options", ["change_of_variables", "importance_sampling"])
def test_both_hosts_weigh_in_the_same_way(checkout, tiny_config, tmp_path, options):
    """The two other objectives of MDLM, whose weights and times come from the schedule's ends."""
    config = tiny_config("plain", tmp_path, f"training.{options}=true")
    theirs, ours, prepared = modules_on_both_hosts(config)
    shake(theirs, ours)
    batch = prepared.train[:8]
    losses = []
    for module in (theirs, ours):
        torch.manual_seed(3)
        losses.append(module.eval()._loss(batch["input_ids"], batch["attention_mask"]))
    assert torch.equal(losses[0].loss, losses[1].loss)
    assert torch.equal(losses[0].nlls, losses[1].nlls)


@pytest.mark.parametrize("model", MODELS)
def test_both_hosts_start_from_the_same_weights(checkout, tiny_config, tmp_path, model):
    theirs, ours, _ = modules_on_both_hosts(tiny_config(model, tmp_path))
    assert missing(type(theirs), theirs) == set()
    names = [name for name, _ in ours.backbone.named_parameters()]
    assert names == [name for name, _ in theirs.backbone.named_parameters()]
    for a, b in zip(theirs.backbone.parameters(), ours.backbone.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("model", MODELS)
def test_both_hosts_compute_the_same_loss_and_gradient(checkout, tiny_config, tmp_path, model):
    theirs, ours, prepared = modules_on_both_hosts(tiny_config(model, tmp_path))
    shake(theirs, ours)
    batch = prepared.train[:8]
    attended = batch["attention_mask"].clone()
    attended[0, 20:] = 0
    losses = []
    for module in (theirs, ours):
        module.train()
        torch.manual_seed(3)
        losses.append(module._loss(batch["input_ids"], attended))
        losses[-1].loss.backward()
    assert torch.equal(losses[0].loss, losses[1].loss) and 0 < losses[0].loss < 100
    assert torch.equal(losses[0].nlls, losses[1].nlls)
    grads = [[p.grad for p in m.backbone.parameters() if p.requires_grad] for m in (theirs, ours)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("predictor", ["ddpm_cache", "ddpm"])
@pytest.mark.parametrize("model", MODELS)
def test_both_hosts_draw_the_same_samples(checkout, tiny_config, tmp_path, model, predictor):
    config = tiny_config(model, tmp_path, f"sampling.predictor={predictor}", "decode=mdlm")
    theirs, ours, prepared = modules_on_both_hosts(config)
    shake(theirs, ours)
    drawn = []
    for module in (theirs, ours):
        torch.manual_seed(4)
        drawn.append(module.restore_model_and_sample(num_steps=9))
    assert torch.equal(*drawn) and drawn[0].shape == (8, 32)
    assert (drawn[0] != prepared.mask_index).all() and drawn[0].unique().numel() > 5


# --- MDLM's own checkpoints --------------------------------------------------------------------


def test_a_checkpoint_of_mdlm_itself_is_imported(
    trained, tiny_config, tmp_path, judge, monkeypatch
):
    """Trained by MDLM's own class, refused as it is, imported, and equally good afterwards."""
    gpt2 = f"eval.gen_ppl_eval_model_name_or_path={judge}"  # the original loads its tokenizer
    with monkeypatch.context() as patch:
        patch.setattr(mdlm_module, "module_class", lambda upstream, _: upstream.diffusion.Diffusion)
        run_config(tiny_config("plain", tmp_path / "own", gpt2))
    own, imported = last(tmp_path / "own"), tmp_path / "imported.ckpt"
    assert (tmp_path / "own" / "metrics.csv").read_bytes() == (
        trained["plain"] / "metrics.csv"
    ).read_bytes()

    def evaluate(path: Path, *overrides: str) -> float:
        overrides = ("mode=ppl_eval", f"eval.checkpoint_path={path}", *overrides)
        return run_config(tiny_config("plain", tmp_path, *overrides))["metrics"]["val/nll"]

    with pytest.raises(UserError, match="import_checkpoint"):
        evaluate(own)
    overrides = import_checkpoint(own, imported, trust_pickle=True)
    assert "model.hidden_size=32" in overrides
    ours = last(trained["plain"])
    assert evaluate(imported) == evaluate(ours)
    assert evaluate(imported, "host=builtin") == evaluate(ours, "host=builtin")


def test_a_mixture_starts_from_an_mdlm_checkpoint(trained, tiny_config, tmp_path):
    start = f"init.from_checkpoint={last(trained['plain'])}"
    run_config(tiny_config("M8", tmp_path, start, "trainer.max_steps=3"))
    fresh = logged(trained["M8"], "val/nll")[3]
    assert logged(tmp_path, "val/nll")[3] < fresh


def test_latents_per_block_behind_attention(trained, tiny_config, tmp_path):
    late = (
        "model.latent_site=after_attention",
        "model.latent=chain",
        "model.num_components=1",
        "model.block_components=3",
        "model.block_length=1",
        "loss.backward=drawn",
    )
    start = f"init.from_checkpoint={last(trained['plain'])}"
    run_config(tiny_config("M8", tmp_path, *late, start, "trainer.max_steps=3"))
    for host in ("mdlm", "builtin"):  # whose masks differ
        ask = ("mode=ppl_eval", f"host={host}")
        plain = run_config(tiny_config("plain", trained["plain"], *ask))["metrics"]["val/nll"]
        found = run_config(tiny_config("M8", tmp_path, *late, *ask))["metrics"]["val/nll"]
        assert found == pytest.approx(plain, rel=0.05) and found != plain
    sampled = run_config(tiny_config("M8", tmp_path, *late, "mode=sample_eval"))
    assert sampled["policy"] == "commit"


# --- typed inside the checkout -----------------------------------------------------------------


def test_the_patched_main_runs_the_plugin(checkout, tiny_config, tmp_path):
    home = tmp_path / "mdlm"
    shutil.copytree(checkout, home, ignore=shutil.ignore_patterns(".git"))
    patch = ROOT / "patches" / "run_inside_mdlm.patch"
    subprocess.run(["git", "apply", "--unidiff-zero", str(patch)], cwd=home, check=True)
    assert (home / "main.py").read_bytes().startswith(mdlm_checkout.INSERTED_LINE)
    assert mdlm_checkout.source_digest(home) == mdlm_checkout.source_digest(checkout)

    environment = {k: v for k, v in os.environ.items() if k != "MDLM_HOME"}
    environment["PYTHONPATH"] = str(ROOT)
    cache = tiny_config("M8", tmp_path).data.cache_dir
    command = [sys.executable, "main.py", *tiny_config.overrides("M8")]
    command += [f"run_dir={tmp_path / 'run'}", f"data.cache_dir={cache}", "trainer.max_steps=3"]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"host: mdlm ({home})" in done.stdout
    assert read_checkpoint(last(tmp_path / "run"))["global_step"] == 3
