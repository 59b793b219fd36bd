"""Records of LKF and of MDLM's own network from mode=sample_eval and mode=ppl_eval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.errors import UserError
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.records.record import read_record
from lkf_plugin.train.spread import Spread
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]
SAMPLE = ("mode=sample_eval", "loader.eval_batch_size=3")


def names(tmp_path: Path) -> set[str]:
    return {path.stem for path in (tmp_path / "run" / "records").iterdir()}


def test_of_a_mixture(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny(*LKF))
    run(tiny(*LKF, "mode=ppl_eval"))
    for J in (1, 2):
        run(tiny(*LKF, *SAMPLE, f"sampling.steps={J}"))
    run(tiny(*LKF[:-1], *SAMPLE, "decode=commit"))
    run(tiny(*LKF, *SAMPLE, "decode.policy=mdlm"))
    rows = ("best_of_m.nelbo.T1.J1", "best_of_m.nelbo.T1.J2", "commit.J4", "mdlm.J4", "likelihood")
    assert names(tmp_path) == {f"agreetext.M2.{row}" for row in rows}
    best, host = (
        read_record(tmp_path / "run" / "records" / f"agreetext.M2.{row}.json")
        for row in (rows[1], "mdlm.J4")
    )
    assert best.calls == 2 * (2 + 1) and best.settings["decode.score_draws"] == 1
    assert best.samples == 6 and best.num_components == 2 and best.latent_blocks == 1
    assert best.ema and "baseline" not in best.settings
    assert best.precision == "network 32-true, draws float64"
    assert host.precision == "network 32-true, draws float32" and host.calls == 4


def test_of_mdlms_own_network(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny())
    run(tiny("mode=ppl_eval", "eval.disable_ema=true"))
    run(tiny(*SAMPLE))
    assert names(tmp_path) == {"agreetext.mdlm.likelihood", "agreetext.mdlm.own.J4"}
    record = read_record(tmp_path / "run" / "records" / "agreetext.mdlm.likelihood.json")
    assert record.settings["baseline"] == "mdlm" and not record.ema
    assert record.precision == "network 32-true" and record.judge is None


@pytest.mark.parametrize("model", [(), LKF], ids=["mdlm", "mixture"])
def test_the_error_is_over_sequences(
    tiny: Compose, run: Run, monkeypatch: pytest.MonkeyPatch, model: tuple[str, ...]
) -> None:
    """Against a count in another place: what the module adds to its validation's means."""
    run(tiny(*model))
    spread, compute = Spread(), Diffusion._compute_loss

    def counted(self: Any, batch: Any, prefix: str) -> torch.Tensor:
        inner = self._loss

        def keep(*args: Any) -> Any:
            losses = inner(*args)
            tokens_BL = losses.token_mask.double()
            spread.add((losses.nlls.double() * tokens_BL).sum(-1), tokens_BL.sum(-1))
            return losses

        self._loss = keep
        try:
            return compute(self, batch, prefix)
        finally:
            self._loss = inner

    monkeypatch.setattr(Diffusion, "_compute_loss", counted)
    found = run(tiny(*model, "mode=ppl_eval"))["likelihood"]
    assert found["nelbo"]["se"] == pytest.approx(spread.standard_error(), rel=1e-12)
    assert found["nelbo"]["n"] == 12 and found["nelbo"]["se"] > 0


def test_prompts_leave_no_record(
    tiny: Compose, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny())
    config = tiny(*SAMPLE)
    config.sampling.prompt = "[MASK] near [MASK]"
    run(config)
    assert "no record" in capsys.readouterr().out
    assert not (tmp_path / "run" / "records").exists()


def test_nothing_evaluated_is_told(tiny: Compose, run: Run) -> None:
    run(tiny())
    with pytest.raises(UserError, match="limit_val_batches"):
        run(tiny("mode=ppl_eval", "trainer.limit_val_batches=0"))
