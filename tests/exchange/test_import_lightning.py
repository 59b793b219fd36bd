"""Importing checkpoints of MDLM's own trainer (imitated here; the live tests use real ones)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import OmegaConf

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import import_checkpoint

SCRIPT = Path(__file__).parents[2] / "scripts" / "import_checkpoint.py"
MODEL = {
    "name": "nano",
    "type": "ddit",
    "hidden_size": 8,
    "cond_dim": 4,
    "length": 6,
    "n_blocks": 2,
    "n_heads": 2,
    "dropout": 0.1,
    "scale_by_sigma": True,
}


@pytest.fixture
def pickled(tmp_path, monkeypatch):
    """What MDLM's trainer would write; the tokenizer's module is gone when it is read."""
    network = build_backbone(MODEL, 11, 10)
    vanishing = ModuleType("vanishing_tokenizers")
    vanishing.Tokenizer = type("Tokenizer", (dict,), {"__module__": "vanishing_tokenizers"})
    config = OmegaConf.create(
        {
            "backbone": "dit",
            "parameterization": "subs",
            "time_conditioning": False,
            "T": 0,
            "model": MODEL,
            "loader": {"num_workers": "${eval:'1+1'}"},
        }
    )
    checkpoint = {
        "epoch": 0,
        "global_step": 7,
        "pytorch-lightning_version": "2.2.1",
        "loops": {"fit_loop": {"epoch_progress": {"current": {"completed": 0}}}},
        "state_dict": {f"backbone.{k}": v for k, v in network.state_dict().items()},
        "ema": {
            "decay": 0.9999,
            "num_updates": 7,
            "shadow_params": [p.detach() + 1 for p in network.parameters()],
        },
        "hyper_parameters": {"config": config, "tokenizer": vanishing.Tokenizer(a=1)},
    }

    def write(**changes) -> Path:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "vanishing_tokenizers", vanishing)
            torch.save({**checkpoint, **changes}, tmp_path / "mdlm.ckpt")
        return tmp_path / "mdlm.ckpt"

    write.checkpoint, write.network = checkpoint, network
    return write


def test_weights_average_and_configuration_come_through(pickled, tmp_path):
    source, target = pickled(), tmp_path / "out" / "imported.ckpt"
    overrides = import_checkpoint(source, target, trust_pickle=True)

    loaded = read_checkpoint(target)
    assert "hyper_parameters" not in loaded and loaded["global_step"] == 7
    for name, tensor in pickled.network.state_dict().items():
        assert torch.equal(loaded["state_dict"][f"backbone.{name}"], tensor)
    shadows = loaded["ema"]["shadow_params"]
    for parameter, shadow in zip(pickled.network.parameters(), shadows, strict=True):
        assert torch.equal(shadow, parameter + 1)
    config = OmegaConf.load(target.with_suffix(".yaml"))
    assert config.model == MODEL
    assert "model.hidden_size=8" in overrides and "model.length=6" in overrides
    assert [p.name for p in target.parent.iterdir() if p.name.startswith(".")] == []


def test_nothing_is_unpickled_without_the_flag(pickled, tmp_path, monkeypatch):
    source = pickled()
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("it was read"))
    with pytest.raises(UserError, match="--trust-pickle"):
        import_checkpoint(source, tmp_path / "out.ckpt", trust_pickle=False)


class _Malice:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-the-pickle"),))


def test_calls_in_the_pickle_come_out_empty(pickled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = pickled(extra=_Malice())
    import_checkpoint(source, tmp_path / "out.ckpt", trust_pickle=True)
    assert not (tmp_path / "touched-by-the-pickle").exists()
    assert "extra" not in read_checkpoint(tmp_path / "out.ckpt")


def test_a_weight_of_another_shape_is_named(pickled, tmp_path):
    state = dict(pickled.checkpoint["state_dict"])
    state["backbone.blocks.1.attn_out.weight"] = torch.zeros(8, 9)
    with pytest.raises(UserError, match=r"blocks\.1\.attn_out\.weight has shape \(8, 9\)"):
        import_checkpoint(pickled(state_dict=state), tmp_path / "out.ckpt", trust_pickle=True)
    assert not (tmp_path / "out.ckpt").exists()


def test_a_missing_and_an_unknown_weight_are_named(pickled, tmp_path):
    state = dict(pickled.checkpoint["state_dict"])
    norm = state.pop("backbone.blocks.0.norm1.weight")
    with pytest.raises(UserError, match=r"lacks backbone\.blocks\.0\.norm1\.weight"):
        import_checkpoint(pickled(state_dict=state), tmp_path / "out.ckpt", trust_pickle=True)
    state["backbone.blocks.0.norm1.weight"] = norm
    state["backbone.extra"] = norm
    with pytest.raises(UserError, match=r"unknown backbone\.extra"):
        import_checkpoint(pickled(state_dict=state), tmp_path / "out.ckpt", trust_pickle=True)


def test_an_average_in_another_order_is_refused(pickled, tmp_path):
    ema = dict(pickled.checkpoint["ema"])
    ema["shadow_params"] = ema["shadow_params"][::-1]
    with pytest.raises(UserError, match=r"average of backbone\.vocab_embed\.embedding"):
        import_checkpoint(pickled(ema=ema), tmp_path / "out.ckpt", trust_pickle=True)
    ema["shadow_params"] = ema["shadow_params"][:-1]
    with pytest.raises(UserError, match="averages"):
        import_checkpoint(pickled(ema=ema), tmp_path / "out.ckpt", trust_pickle=True)


@pytest.mark.parametrize("key, value", [("backbone", "dimamba"), ("parameterization", "d3pm")])
def test_other_models_are_refused(pickled, tmp_path, key, value):
    hyper = {"config": pickled.checkpoint["hyper_parameters"]["config"].copy()}
    hyper["config"][key] = value
    with pytest.raises(UserError, match=f"{key}={value}"):
        import_checkpoint(pickled(hyper_parameters=hyper), tmp_path / "out.ckpt", trust_pickle=True)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="no checkpoint"):
        import_checkpoint(tmp_path / "none.ckpt", tmp_path / "out.ckpt", trust_pickle=True)
    (tmp_path / "text.ckpt").write_text("no weights in here")
    with pytest.raises(UserError, match="damaged"):
        import_checkpoint(tmp_path / "text.ckpt", tmp_path / "out.ckpt", trust_pickle=True)
    torch.save({"state_dict": {}}, tmp_path / "ours.ckpt")
    with pytest.raises(UserError, match="no configuration"):
        import_checkpoint(tmp_path / "ours.ckpt", tmp_path / "out.ckpt", trust_pickle=True)


def test_the_script_says_in_one_line_what_it_did(pickled, tmp_path, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    arguments = [str(pickled()), str(tmp_path / "out.ckpt")]
    assert main(arguments) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith("error: ") and refusal.count("\n") == 1
    assert main([*arguments, "--trust-pickle"]) == 0
    assert "model.n_blocks=2" in capsys.readouterr().out
