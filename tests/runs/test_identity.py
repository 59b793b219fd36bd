"""The card of a checkpoint: what counts, what is refused, what could not be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.errors import UserError
from lkf_plugin.runs.identity import CARD, COMPARED, card_of_settings, compare, read_card
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]


def card(config: DictConfig) -> dict[str, Any]:
    return card_of_settings(OmegaConf.to_container(config, resolve=True))


def compared(card: dict[str, Any]) -> list[Any]:
    return [card.get(part) for part in COMPARED]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.n_heads=4", "model.n_heads is 2 in a.ckpt and 4 in the settings"),
        ("model.latent_blocks=2", "model.latent_blocks is 1 in a.ckpt and 2 in the settings"),
        (
            "model.latent_site=after_attention",
            "model.latent_site is block in a.ckpt and after_attention in the settings",
        ),
        ("model.scale_by_sigma=false", "model.scale_by_sigma is true in a.ckpt and false"),
        ("time_conditioning=true", "time_conditioning is false in a.ckpt and true"),
        ("T=10", "T is 0 in a.ckpt and 10"),
        ("noise.type=cosine", "noise.type is loglinear in a.ckpt and cosine"),
        ("diffusion=uniform_state", "diffusion is absorbing_state in a.ckpt and uniform_state"),
        ("+model.some_new_switch=1", None),
    ],
)
def test_options_that_leave_the_shapes_count(tiny: Compose, override: str, words: str) -> None:
    old, new = card(tiny(*LKF)), card(tiny(*LKF, override))
    assert compared(old) != compared(new)
    if words is None:
        assert compare(old, new, "a.ckpt", ("tokenizer",)) == ["model.some_new_switch"]
        return
    with pytest.raises(UserError, match="^" + words) as caught:
        compare(old, new, "a.ckpt", ("tokenizer",))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "override", ["model.dropout=0.5", "model.length=8", "model.compile_blocks=true", "seed=9"]
)
def test_what_only_starts_or_speeds_up_training_does_not(tiny: Compose, override: str) -> None:
    old, new = card(tiny(*LKF)), card(tiny(*LKF, override))
    assert compared(old) == compared(new) and compare(old, new, "p", ("tokenizer",)) == []


def test_the_site_of_earlier_checkpoints_goes_without_saying(tiny: Compose) -> None:
    now = card(tiny(*LKF))
    assert "latent_site" not in now["network"]
    behind = card(tiny(*LKF, "model.latent_site=after_attention"))
    assert behind["network"]["latent_site"] == "after_attention"


def test_methods(tiny: Compose) -> None:
    plain, baseline, mixture = card(tiny()), card(tiny("method=mdlm")), card(tiny(*LKF))
    assert plain["method"] == baseline["method"]  # one network, one loss
    with pytest.raises(UserError, match="by the method lkf, and the settings describe mdlm"):
        compare(mixture, plain, "p", ("tokenizer",))


def test_a_later_or_damaged_card() -> None:
    assert read_card({}, "p") is None
    with pytest.raises(UserError, match="update this package"):
        read_card({CARD: {"format": 99, "version": "9.9"}}, "p")
    for damaged in (7, [], {"network": {}}, {"format": 1, "process": 3}):
        with pytest.raises(UserError, match="does not say what it is"):
            read_card({CARD: damaged}, "p")
    assert compare({}, {"method": {"name": "mdlm"}}, "p") == [
        *("method", "network", "process", "tokenizer")
    ]


@pytest.mark.parametrize("mode", ["ppl_eval", "sample_eval"])
def test_evaluations_refuse_another_network(
    tiny: Compose, run: Callable[[DictConfig], Any], tmp_path: Path, mode: str
) -> None:
    run(tiny("trainer.max_steps=2"))
    for override, key in (("model.n_heads=4", "model.n_heads"), ("T=10", "T")):
        with pytest.raises(UserError, match=f"^{key} is .* in .*best.ckpt and .* in the settings"):
            run(tiny(override, f"mode={mode}"))
    # of a checkpoint that has no card, the settings beside it are compared
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint[CARD]
    torch.save(checkpoint, path)
    with pytest.raises(UserError, match="^model.n_heads is 2"):
        run(tiny("model.n_heads=4", f"mode={mode}"))
    run(tiny(f"mode={mode}", "loader.eval_batch_size=2", "sampling.num_sample_batches=1"))


def test_a_start_is_compared(
    tiny: Compose, run: Callable[[DictConfig], Any], tmp_path: Path, capsys: Any
) -> None:
    run(tiny("trainer.max_steps=2"))
    source = f"init.from_checkpoint={tmp_path / 'run' / 'checkpoints' / 'last.ckpt'}"
    new = ("trainer.max_steps=1", source, f"run_dir={tmp_path / 'new'}")
    for override in ("model.n_heads=4", "time_conditioning=true"):
        with pytest.raises(UserError, match=f"^{override.split('=')[0]} is"):
            run(tiny(*LKF, *new, override))
    with pytest.raises(UserError, match="to start a mixture"):
        run(tiny(*new))
    with pytest.raises(UserError, match="There is no checkpoint at"):
        run(tiny(*LKF, *new, "init.from_checkpoint=nowhere.ckpt"))
    capsys.readouterr()
    run(tiny(*LKF, *new))
    assert "not compared" not in capsys.readouterr().out
