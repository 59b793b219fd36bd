"""A mixture that starts from a factorised checkpoint."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.warm_start import start_from
from lkf_plugin.errors import UserError
from tests.tiny import MODEL, tiny_backbone

X = torch.tensor([[2, 2, 0, 2, 5, 2], [1, 2, 2, 2, 2, 3]])
SIGMA = torch.tensor([0.3, 1.2])


def save(path, model, ema=None):
    state = {f"backbone.{k}": v for k, v in model.state_dict().items()}
    checkpoint = {"state_dict": state}
    if ema is not None:
        checkpoint["ema"] = {"shadow_params": ema, "decay": 0.9, "num_updates": 3}
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize("site", ["block", "after_attention"])
def test_an_mdlm_checkpoint_gives_every_component_its_trunk(tmp_path, site):
    mdlm = build_backbone({**MODEL, "type": "ddit"}, 7, 2)
    for p in mdlm.parameters():
        p.data.normal_(std=0.2)
    mixture = build_backbone({**MODEL, "latent_site": site}, 7, 2)
    start_from(mixture, save(tmp_path / "m.ckpt", mdlm))
    assert all(
        torch.equal(a, b)
        for a, b in zip(mdlm.parameters(), mixture.trunk.parameters(), strict=True)
    )
    prior = mixture.route(mixture.encode(X, SIGMA)).logw_BK.exp()
    torch.testing.assert_close(prior, torch.full((2, 3), 1 / 3))
    h = mixture.branch(mixture.encode(X, SIGMA)).h_RLD.unflatten(0, (2, 3))
    assert not torch.equal(h[:, 0], h[:, 1])


def test_the_moving_average_is_preferred(tmp_path):
    single = tiny_backbone(num_components=1).float()
    live = [p for p in single.parameters() if p.requires_grad]
    path = save(tmp_path / "m.ckpt", single, ema=[p.detach() + 1 for p in live])
    mixture = build_backbone(MODEL, 7, 2)
    start_from(mixture, path)
    for ours, theirs in zip(mixture.trunk.parameters(), single.trunk.parameters(), strict=True):
        assert torch.equal(ours, theirs + 1)


def test_wrong_sources_are_refused(tmp_path):
    mixture = build_backbone(MODEL, 7, 2)
    with pytest.raises(UserError, match="no checkpoint at"):
        start_from(mixture, tmp_path / "absent.ckpt")
    with pytest.raises(UserError, match="mixture of 3 components"):
        more = build_backbone({**MODEL, "num_components": 4}, 7, 2)
        start_from(more, save(tmp_path / "a.ckpt", build_backbone(MODEL, 7, 2)))
    wide = build_backbone({**MODEL, "type": "ddit", "hidden_size": 32}, 7, 2)
    with pytest.raises(UserError, match="same model sizes"):
        start_from(mixture, save(tmp_path / "b.ckpt", wide))
    shallow = build_backbone({**MODEL, "type": "ddit", "n_blocks": 1}, 7, 2)
    with pytest.raises(UserError, match="n_blocks"):
        start_from(mixture, save(tmp_path / "c.ckpt", shallow))
    whole = save(tmp_path / "d.ckpt", shallow)
    (tmp_path / "e.ckpt").write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"e\.ckpt"):
        start_from(mixture, tmp_path / "e.ckpt")


@pytest.mark.parametrize("latent", ["tree", "chain"])
@pytest.mark.parametrize("average", [False, True])
def test_block_latents_go_on_from_one_latent_per_sequence(tmp_path, latent, average):
    lkf = tiny_backbone(num_components=3, seed=4).float()
    ema = [p.detach() + 1 for p in lkf.parameters() if p.requires_grad] if average else None
    path = save(tmp_path / "k.ckpt", lkf, ema=ema)
    changes = {"latent": latent, "block_components": 2, "block_length": 3}
    ours = build_backbone({**MODEL, **changes}, 7, 2)
    start_from(ours, path)
    theirs = dict(lkf.named_parameters())
    shift = 1.0 if average else 0.0
    own = dict(ours.named_parameters())
    for name in (*(n for n in own if n.startswith("trunk.")), "router.out.bias"):
        assert torch.equal(own[name], theirs[name] + shift)
    start_KC = theirs["latent_emb.weight"] + shift
    found_KmC = own["latent_emb.weight"].unflatten(0, (3, 2))
    apart = (found_KmC - start_KC[:, None]).std() / start_KC.std()
    assert 0.05 < apart < 0.2
    few = build_backbone({**MODEL, **changes, "num_components": 2}, 7, 2)
    with pytest.raises(UserError, match="model.num_components=3"):
        start_from(few, path)
    with pytest.raises(UserError, match="has latents per block"):
        start_from(few, save(tmp_path / "tree.ckpt", ours))
