"""Public layouts in and out: names, numbers, the average and the mask's row."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from lkf_plugin.backbone import MatchedTrunk
from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.cli import run
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.exchange.export import export_checkpoint
from lkf_plugin.exchange.mask_row import row_order
from lkf_plugin.methods.causal import CausalTransformer
from lkf_plugin.runs.common import load_weights

SIZES = {"hidden_size": 16, "cond_dim": 8, "n_blocks": 2, "n_heads": 2}
SCRIPT = Path(__file__).parents[2] / "scripts" / "import_checkpoint.py"


def tiny_network(vocab_size: int = 88) -> MatchedTrunk:
    torch.manual_seed(4)
    network = MatchedTrunk(vocab_size, dropout=0.0, **SIZES)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return network


def average_of(network) -> dict:
    shadows = [weight.detach() + 0.01 for weight in network.parameters()]
    return {"decay": 0.9999, "num_updates": 12, "shadow_params": shadows}


@pytest.fixture
def written(tmp_path):
    """``written("sedd")``: a tiny checkpoint as SEDD, DUO or MDLM writes it, or as on the hub."""

    def write(layout: str, vocab_size: int = 88) -> tuple[Path, MatchedTrunk]:
        network = tiny_network(vocab_size)
        bare = network.state_dict()
        prefixed = {f"backbone.{name}": tensor for name, tensor in bare.items()}
        if layout == "sedd":
            path = tmp_path / "checkpoint.pth"
            content = {"model": bare, "ema": average_of(network), "optimizer": {}, "step": 9}
            torch.save(content, path)
        elif layout == "duo":
            path = tmp_path / "duo.ckpt"
            config = {
                "algo": {"name": "duo", "backbone": "dit", "parameterization": "mean"},
                "model": {"length": 32},
            }
            content = {"state_dict": prefixed, "ema": average_of(network), "global_step": 9}
            content["hyper_parameters"] = {"config": OmegaConf.create(config)}
            torch.save(content, path)
        else:
            path = tmp_path / f"hub-{layout}"
            path.mkdir()
            save_file(prefixed if layout != "hub-sedd" else bare, path / "model.safetensors")
            said = {"graph": {"type": "absorb"}} if layout == "hub-sedd" else {}
            if layout == "hub-mdlm":
                said = {"model_type": "mdlm", "model_length": 32}
            (path / "config.json").write_text(json.dumps(said))
        return path, network

    return write


@pytest.mark.parametrize(("layout", "method"), (("sedd", "sedd"), ("duo", "duo")))
def test_weights_and_average_load_name_for_name(written, module_of, tmp_path, layout, method):
    path, network = written(layout)
    overrides = import_checkpoint(path, tmp_path / "out.ckpt", trust_pickle=True)
    assert f"method={method}" in overrides and "model.n_heads=2" in overrides
    module = module_of(method)
    module.backbone.float()
    assert load_weights(module, tmp_path / "out.ckpt") == {"step": 9}
    for name, tensor in network.state_dict().items():
        assert torch.equal(module.backbone.state_dict()[name], tensor)
    for weight, shadow in zip(network.parameters(), module.ema.shadow_params, strict=True):
        assert torch.equal(shadow, weight + 0.01)


@pytest.mark.parametrize(
    ("layout", "method"), (("hub-mdlm", "mdlm"), ("hub-sedd", "sedd"), ("hub-plain", None))
)
def test_safetensors_load_without_an_average(written, module_of, tmp_path, layout, method):
    path, network = written(layout)
    target = tmp_path / "out.ckpt"
    if method is None:
        with pytest.raises(UserError, match="--method"):
            import_checkpoint(path, target, trust_pickle=False)
        method = "duo"
    overrides = import_checkpoint(path, target, False, Wanted(method))
    assert "training.ema=0" in overrides
    module = module_of(method, "training.ema=0")
    module.backbone.float()
    load_weights(module, target)
    x, sigma = torch.randint(0, 88, (2, 5)), torch.tensor([0.3, 0.9])
    assert torch.equal(module.backbone(x, sigma), network.eval()(x, sigma))


@pytest.mark.parametrize("layout", ("sedd", "huggingface"))
def test_round_trip(written, tmp_path, layout):
    path, _ = written("sedd")
    first, second = tmp_path / "first.ckpt", tmp_path / "second.ckpt"
    import_checkpoint(path, first, True)
    exported = tmp_path / "exported" if layout == "huggingface" else tmp_path / "exported.pth"
    export_checkpoint(first, exported, layout)
    import_checkpoint(exported, second, True, Wanted("sedd"))
    before, after = read_checkpoint(first), read_checkpoint(second)
    assert before["state_dict"].keys() == after["state_dict"].keys()
    if layout == "sedd":
        for name, tensor in before["state_dict"].items():
            assert torch.equal(after["state_dict"][name], tensor)
        pairs = zip(before["ema"]["shadow_params"], after["ema"]["shadow_params"], strict=True)
        assert all(torch.equal(old, new) for old, new in pairs)
    else:  # the average is what a hub takes
        table = "backbone.vocab_embed.embedding"
        assert torch.equal(after["state_dict"][table], before["ema"]["shadow_params"][0])
        assert "ema" not in after


def test_an_ar_checkpoint_loads(tmp_path):
    network = CausalTransformer(11, hidden_size=8, n_blocks=1, n_heads=2, dropout=0.0)
    config = {
        "backbone": "ar",
        "parameterization": "ar",
        "model": {"length": 16, "dropout": 0.0},
    }
    content = {
        "state_dict": {f"backbone.{k}": v for k, v in network.state_dict().items()},
        "hyper_parameters": {"config": OmegaConf.create(config)},
    }
    torch.save(content, tmp_path / "ar.ckpt")
    overrides = import_checkpoint(tmp_path / "ar.ckpt", tmp_path / "out.ckpt", True)
    assert {"method=ar", "method.start=data", "model.length=16"} <= set(overrides)


# --- the mask's row ----------------------------------------------------------------------------


def test_the_mask_row_moves_and_the_network_means_the_same(written, tmp_path):
    """With the mask at row 3 instead of the last, logits are those of before, in another order."""
    path, network = written("sedd")
    target = tmp_path / "out.ckpt"
    import_checkpoint(path, target, True, Wanted(mask_index=3, vocab_size=88))
    moved = tiny_network()
    state = read_checkpoint(target)["state_dict"]
    moved.load_state_dict({k.removeprefix("backbone."): v for k, v in state.items()})
    order = torch.tensor(row_order(88, 87, 88, 3))
    assert order[3] == 87 and order[4] == 3 and sorted(order.tolist()) == list(range(88))
    mine, sigma = torch.tensor([[3, 0, 87, 4]]), torch.tensor([0.4])
    wanted = network.eval()(order[mine], sigma)[..., order]
    torch.testing.assert_close(moved.eval()(mine, sigma), wanted, rtol=0, atol=0)
    shadow = read_checkpoint(target)["ema"]["shadow_params"][0]
    assert torch.equal(shadow, state["backbone.vocab_embed.embedding"] + 0.01)


def test_a_mask_of_its_own_gives_way(written, tmp_path):
    """SEDD over a tokenizer with a mask has one row more than the tokenizer."""
    path, network = written("sedd", vocab_size=89)
    target = tmp_path / "out.ckpt"
    import_checkpoint(path, target, True, Wanted(mask_index=5, vocab_size=88))
    table = read_checkpoint(target)["state_dict"]["backbone.vocab_embed.embedding"]
    source = network.vocab_embed.embedding.detach()
    assert torch.equal(table[5], source[88])
    assert torch.equal(table[:5], source[:5]) and torch.equal(table[6:], source[6:88])


def test_other_vocabularies_and_open_masks_are_refused(written, tmp_path):
    path, _ = written("sedd")
    target = tmp_path / "out.ckpt"
    with pytest.raises(UserError, match="88 rows and the tokenizer 50"):
        import_checkpoint(path, target, True, Wanted(mask_index=3, vocab_size=50))
    with pytest.raises(UserError, match="--mask-index"):
        import_checkpoint(path, target, True, Wanted(vocab_size=50))
    hub, _ = written("hub-mdlm")
    with pytest.raises(UserError, match="--source-mask"):
        import_checkpoint(hub, target, False, Wanted(mask_index=3))
    assert not target.exists()


def test_shapes_and_names_are_named(written, tmp_path):
    path, _ = written("sedd")
    content = torch.load(path)
    weight = content["model"].pop("blocks.1.mlp.0.weight")
    torch.save(content, path)
    with pytest.raises(UserError, match=r"lacks backbone\.blocks\.1\.mlp\.0\.weight"):
        import_checkpoint(path, tmp_path / "out.ckpt", True)
    content["model"]["blocks.1.mlp.0.weight"] = weight[:-1]
    torch.save(content, path)
    with pytest.raises(UserError, match=r"blocks\.1\.mlp\.0\.weight has shape \(63, 16\)"):
        import_checkpoint(path, tmp_path / "out.ckpt", True)


def test_an_imported_checkpoint_is_evaluated_and_trained_on(written, config_of, tmp_path):
    path, _ = written("sedd")
    target = tmp_path / "out.ckpt"
    import_checkpoint(path, target, True)
    report = run(config_of("sedd", "mode=ppl_eval", f"eval.checkpoint_path={target}"))
    assert report["method"] == "sedd" and report["metrics"]["val/nll_se"] > 0
    logged = run(config_of("sedd", f"init.from_checkpoint={target}", "trainer.max_steps=1"))
    assert logged["trainer/loss"] > 0
    module_weights = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["ema"]
    start = read_checkpoint(target)["ema"]["shadow_params"][0]
    assert (module_weights["shadow_params"][0] - start).abs().max() < 0.1


def test_the_script_exports(written, tmp_path, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    path, _ = written("sedd")
    assert main([str(path), str(tmp_path / "in.ckpt"), "--trust-pickle"]) == 0
    arguments = [str(tmp_path / "in.ckpt"), str(tmp_path / "hub"), "--export", "huggingface"]
    assert main(arguments) == 0
    assert (tmp_path / "hub" / "model.safetensors").is_file()
    assert "wrote" in capsys.readouterr().out
