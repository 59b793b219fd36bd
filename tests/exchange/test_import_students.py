"""Published layouts of SDTT, Di4C, ReDi and DCD: names, shapes, the mask's row, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.cli import run
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.exchange.export import export_checkpoint
from lkf_plugin.methods.di4c_network import add_latent, latent_logits
from lkf_plugin.runs.common import load_weights
from lkf_plugin.runs.identity import CARD
from lkf_plugin.runs.tokenizer import tokenizer_card
from tests.exchange.test_import_layouts import average_of, tiny_network

OURS, MASK = 88, 87  # AgreeText's rows, its mask the last
CONFIG: dict[str, Any] = {
    "model": {"type": "ddit-orig", "length": 32, "dropout": 0.1},
    "parameterization": {"name": "multi-round-sdtt", "num_distill_steps": 2},
    "tokenizer": {"name": "gpt2"},
    "time_conditioning": False,
    "T": 0,
}


def student(latent: bool) -> Any:
    network: Any = tiny_network(OURS)
    if latent:
        add_latent(network, 16)
    return network.eval()


def wanted(mask: int = MASK) -> Wanted:
    card = tokenizer_card(agreetext_tokenizer(), "agreetext")
    return Wanted(None, mask, OURS, tokenizer={**card, "mask": mask})


@pytest.fixture
def written(tmp_path: Path):
    """``written("sdtt", "backbone.backbone.")``: as the original's trainer or hub has it."""

    def write(kind: str, prefix: str = "backbone.", folder: bool = False) -> tuple[Path, Any]:
        network = student(kind == "di4c")
        state = {prefix + name: tensor for name, tensor in network.state_dict().items()}
        if kind in ("sdtt", "di4c"):
            config = CONFIG
        else:
            algo = {"redi": "rectification", "dcd": "distillation"}[kind]
            config = {"algo": {"name": algo, "backbone": "dit"}, "model": {"length": 32}}
        if folder:
            path = tmp_path / f"hub-{kind}"
            path.mkdir()
            save_file(state, path / "model.safetensors")
            (path / "config.json").write_text(json.dumps(config))
            return path, network
        path = tmp_path / f"{kind}.ckpt"
        content = {"state_dict": state, "ema": average_of(network), "global_step": 70}
        content["hyper_parameters"] = {"config": OmegaConf.create(config)}
        torch.save(content, path)
        return path, network

    return write


@pytest.mark.parametrize("folder", [True, False], ids=("hub", "lightning"))
@pytest.mark.parametrize("prefix", ["backbone.", "backbone.backbone.", "backbone._orig_mod."])
def test_an_sdtt_student_loads_name_for_name(written, module_of, tmp_path, prefix, folder) -> None:
    path, network = written("sdtt", prefix, folder)
    words = import_checkpoint(path, tmp_path / "ours.ckpt", True, wanted())
    assert "method=sdtt" in words and "time_conditioning=false" in words
    assert ("training.ema=0" in words) == folder
    module = module_of("sdtt", "mode=sample_eval", "training.ema=0")
    module.backbone.float()
    checkpoint = read_checkpoint(tmp_path / "ours.ckpt")
    assert ("ema" in checkpoint) == (not folder)
    load_weights(module, tmp_path / "ours.ckpt")
    x, sigma = torch.randint(0, OURS, (2, 5)), torch.zeros(2)
    assert torch.equal(module.backbone(x, sigma), network(x, sigma))
    assert checkpoint[CARD]["method"]["name"] == "sdtt"
    assert checkpoint[CARD]["process"]["time_conditioning"] is False


def test_a_di4c_student_brings_its_latent_and_leaves_its_average(written, module_of, tmp_path):
    path, network = written("di4c")
    words = import_checkpoint(path, tmp_path / "ours.ckpt", True, wanted())
    assert "method=di4c" in words and "training.ema=0" in words  # the original's is of no use
    module = module_of("di4c", "mode=sample_eval", "training.ema=0")
    module.backbone.float()
    load_weights(module, tmp_path / "ours.ckpt")
    x, sigma, z = torch.randint(0, OURS, (2, 5)), torch.zeros(2), torch.tensor([0.1, 0.8])
    ours, theirs = (latent_logits(one, x, sigma, z) for one in (module.backbone, network))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["redi", "dcd"])
def test_duo_s_students_load(written, module_of, tmp_path, kind) -> None:
    path, network = written(kind)
    words = import_checkpoint(path, tmp_path / "ours.ckpt", True)
    assert f"method={kind}" in words and "training.ema=0" not in words
    module = module_of(kind, "mode=sample_eval")
    module.backbone.float()
    load_weights(module, tmp_path / "ours.ckpt")
    x, sigma = torch.randint(0, OURS, (2, 5)), torch.tensor([0.3, 0.9])
    assert torch.equal(module.backbone(x, sigma), network(x, sigma))


@pytest.mark.parametrize("kind", ["sdtt", "di4c"])
def test_round_trip_with_the_mask_s_row_moved_and_moved_back(written, tmp_path, kind) -> None:
    """Ours at row 3, theirs the last; what is exported is what was imported."""
    path, network = written(kind, folder=True)
    first, second = tmp_path / "first.ckpt", tmp_path / "second.ckpt"
    import_checkpoint(path, first, True, wanted(3))
    table = read_checkpoint(first)["state_dict"]["backbone.vocab_embed.embedding"]
    theirs = network.state_dict()["vocab_embed.embedding"]
    assert torch.equal(table[3], theirs[MASK]) and torch.equal(table[4], theirs[3])
    export_checkpoint(first, tmp_path / "out", "sdtt")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    original = load_file(path / "model.safetensors")
    assert exported.keys() == original.keys()
    assert all(torch.equal(exported[name], original[name]) for name in original)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["parameterization"]["name"] == "multi-round-sdtt"
    assert config["mask_index"] == MASK and config["model"]["hidden_size"] == 16
    import_checkpoint(tmp_path / "out", second, True, wanted(3))
    before, after = (read_checkpoint(one)["state_dict"] for one in (first, second))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_average_is_what_sdtt_s_folder_holds(written, tmp_path) -> None:
    path, _ = written("sdtt")
    import_checkpoint(path, tmp_path / "ours.ckpt", True, wanted())
    export_checkpoint(tmp_path / "ours.ckpt", tmp_path / "out", "sdtt")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    shadow = read_checkpoint(tmp_path / "ours.ckpt")["ema"]["shadow_params"][0]
    assert torch.equal(exported["backbone.vocab_embed.embedding"], shadow)


def test_what_does_not_fit_is_told(written, tmp_path) -> None:
    path, _ = written("sdtt", folder=True)
    with pytest.raises(UserError, match="has no latent's weights: it is not of method di4c"):
        import_checkpoint(path, tmp_path / "ours.ckpt", True, Wanted("di4c", MASK, OURS))
    with_latent, _ = written("di4c", folder=True)
    with pytest.raises(UserError, match="has a latent's weights"):
        import_checkpoint(with_latent, tmp_path / "ours.ckpt", True, Wanted("sdtt", MASK, OURS))
    import_checkpoint(path, tmp_path / "open.ckpt", True)
    with pytest.raises(UserError, match="which row is its mask's"):
        export_checkpoint(tmp_path / "open.ckpt", tmp_path / "out", "sdtt")


def test_an_imported_student_is_evaluated_and_teaches(written, config_of, tmp_path) -> None:
    path, _ = written("sdtt")
    ours = tmp_path / "ours.ckpt"
    import_checkpoint(path, ours, True, wanted())
    run(config_of("sdtt", "mode=sample_eval", f"eval.checkpoint_path={ours}"))
    assert list((tmp_path / "run" / "samples").glob("*.jsonl"))
    words = ("method.base_steps=8", f"method.teacher={ours}", "method.latents=2")
    run(config_of("di4c", *words, f"run_dir={tmp_path / 'di4c'}"))
    assert (tmp_path / "di4c" / "checkpoints" / "last.ckpt").is_file()
