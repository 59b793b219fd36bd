"""method=sdtt from a teacher to its last round: kept bit for bit, counted, labelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.methods.sdtt_math import DISTANCES, step_size
from lkf_plugin.runs.common import build_module
from tests.methods.kills import KEEP, last

ROUNDS = ("trainer.max_steps=8", "method.rounds=2", "method.base_steps=8", "optim.lr=1e-3")


@pytest.fixture
def teacher(trained: Callable[[str], Path]) -> str:
    return f"method.teacher={trained('mdlm')}"


def test_options_at_a_new_round(runs, teacher, tmp_path):
    """Raw or averaged weights teach; a restarted optimizer has the moments of its own steps."""
    for name, *options in (
        ("plain", "training.ema=0.5"),
        ("average", "training.ema=0.5", "method.ema_on_growth=true"),
        ("reset", "training.ema=0.5", "method.reset_optimizer=true"),
    ):
        cli.run(runs("sdtt", name, *ROUNDS, teacher, *KEEP, *options))
    checkpoints = {
        name: {
            step: read_checkpoint(tmp_path / name / "checkpoints" / f"step-{step}.ckpt")
            for step in (4, 5, 8)
        }
        for name in ("plain", "average", "reset")
    }

    def teaches(name: str) -> list[torch.Tensor]:
        return list(checkpoints[name][5]["teacher"]["weights"].values())

    def weights(name: str) -> list[torch.Tensor]:
        return list(checkpoints[name][4]["state_dict"].values())

    for name in ("plain", "reset"):
        assert all(map(torch.equal, teaches(name), weights(name)))
    assert not all(map(torch.equal, teaches("average"), weights("average")))
    assert checkpoints["plain"][5]["ema"]["num_updates"] == 5
    assert checkpoints["average"][5]["ema"]["num_updates"] == 1

    def steps(name: str) -> set[float]:
        state = checkpoints[name][8]["optimizer_states"][0]["state"]
        return {float(one["step"]) for one in state.values()}

    assert steps("plain") == steps("average") == {8.0}
    assert steps("reset") == {4.0}
    # a warm-up of one step begins at rate zero: the first step of the new round moves nothing
    after = checkpoints["reset"][5]["state_dict"].values()
    assert all(map(torch.equal, weights("reset"), after))


@pytest.mark.parametrize("distance", DISTANCES)
def test_every_distance_trains_towards_the_teacher(runs, teacher, distance):
    """A student whose head was spoilt comes back to what the teacher says in one small step."""
    words = (*ROUNDS, teacher, f"method.distance={distance}", "method.base_steps=1024")
    torch.manual_seed(0)
    module = build_module(runs("sdtt", "run", *words), agreetext_tokenizer())
    x0 = torch.randint(4, 20, (16, 32))
    with torch.no_grad():
        for weight in module.backbone.output_layer.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    optimizer = torch.optim.AdamW(module.backbone.parameters(), lr=2e-2)
    losses = []
    for _ in range(40):
        loss = module.train()._loss(x0, torch.ones_like(x0)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_likelihood_is_the_students_own_and_says_so(runs, teacher, tmp_path, capsys):
    """As of an MDLM with the student's weights, under the same times and noise."""
    words = (*ROUNDS, "training.ema=0.5")
    cli.run(runs("sdtt", "run", *words, teacher))
    capsys.readouterr()
    cli.run(runs("sdtt", "run", *words, "mode=ppl_eval"))  # the teacher may be gone by now
    assert "NELBO of the student itself" in capsys.readouterr().out
    report = json.loads((tmp_path / "run" / "ppl_eval.json").read_text())
    assert "its teacher's is another" in report["likelihood_of"]
    assert report["step"] > 4
    assert report["teacher_calls"] == 2 * report["step"]
    assert report["round"] == 2
    assert report["trained_for_steps"] == 2

    module = build_module(runs("mdlm", "own", "training.ema=0.5"), agreetext_tokenizer())
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt")
    module.load_state_dict(checkpoint["state_dict"])
    module.ema.load_state_dict(checkpoint["ema"])
    as_mdlm = tmp_path / "as_mdlm.ckpt"
    torch.save({k: checkpoint[k] for k in ("state_dict", "ema", "global_step")}, as_mdlm)
    cli.run(
        runs("mdlm", "own", "training.ema=0.5", "mode=ppl_eval", f"eval.checkpoint_path={as_mdlm}")
    )
    plain = json.loads((tmp_path / "own" / "ppl_eval.json").read_text())
    assert "likelihood_of" not in plain
    assert "teacher_calls" not in plain
    assert report["metrics"]["val/nll"] == plain["metrics"]["val/nll"]


def test_samples_are_counted_by_its_own_steps(runs, teacher, tmp_path):
    cli.run(runs("sdtt", "run", *ROUNDS, teacher))
    cli.run(runs("sdtt", "run", *ROUNDS, "mode=sample_eval", "sampling.steps=2"))
    record = json.loads((tmp_path / "run" / "sample_eval.json").read_text())
    assert record["steps_calls"] == 2
    assert record["network_calls"] == 3


def test_loss_of_a_batch(runs, teacher):
    """A mean over attended masks; what the teacher says is a law whatever the round."""
    config = runs("sdtt", "run", *ROUNDS, teacher)
    torch.manual_seed(0)
    module = build_module(config, agreetext_tokenizer()).train()
    x0 = torch.randint(4, 20, (6, 32))
    attended = torch.ones_like(x0)
    attended[0, 10:] = 0
    torch.manual_seed(3)
    loss = module._loss(x0, attended)
    assert module.teacher_calls == 2
    assert loss.nlls[0, 10:].abs().max() == 0
    assert loss.token_mask[0, 10:].sum() == 0
    assert loss.loss.item() == pytest.approx((loss.nlls.sum() / loss.token_mask.sum()).item())
    assert loss.loss > 0
    nobody = module._loss(x0, torch.zeros_like(x0))
    assert nobody.loss == 0
    nobody.loss.backward()  # a micro-batch without a mask is no error
    module.round = 1
    xt = torch.full_like(x0, module.mask_index)
    targets = module.targets(xt, torch.full((6,), step_size(8, 1)))
    rows = targets.logp_BLV.exp().sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows))


def test_imported_weights_teach(runs, trained, tmp_path):
    """What the hub has of an MDLM: weights alone, without an average."""
    state = read_checkpoint(trained("mdlm"))["state_dict"]
    hub = tmp_path / "hub"
    hub.mkdir()
    save_file(
        {name: tensor.contiguous() for name, tensor in state.items()}, hub / "model.safetensors"
    )
    (hub / "config.json").write_text(json.dumps({"model_type": "mdlm", "model_length": 32}))
    import_checkpoint(hub, tmp_path / "import.ckpt", False, Wanted("mdlm"))
    cli.run(runs("sdtt", "run", *ROUNDS, *KEEP, f"method.teacher={tmp_path / 'import.ckpt'}"))
    assert read_checkpoint(last(tmp_path / "run"))["teacher"]["round"] == 1
    first = build_module(
        runs("sdtt", "other", *ROUNDS, f"method.teacher={tmp_path / 'import.ckpt'}"),
        agreetext_tokenizer(),
    )
    for name, tensor in first.teacher.state_dict().items():
        assert torch.equal(tensor, state[f"backbone.{name}"]), name


@pytest.mark.parametrize(
    ("words", "sentence"),
    (
        (("method.rounds=3",), "method.rounds=3 must divide trainer.max_steps=8"),
        (("method.base_steps=6",), "must halve method.base_steps=6"),
        (("method.teacher=''",), "name its checkpoint in method.teacher"),
        (("method.teacher=/nowhere.ckpt",), "There is no checkpoint at /nowhere.ckpt"),
        (("method.ema_on_growth=true", "training.ema=0"), "needs an average"),
        (("model.hidden_size=32",), "hidden_size"),
        (("time_conditioning=true",), "time_conditioning"),
        (("method.distance=kl",), "take kl-bwd, kl-fwd, mse or tvd"),
        (("method.time_grid=linear",), "take exact or upstream"),
    ),
)
def test_mistakes_are_told_before_anything_is_written(runs, teacher, tmp_path, words, sentence):
    with pytest.raises(UserError, match=sentence.replace("(", r"\(")):
        cli.run(runs("sdtt", "run", *ROUNDS, teacher, *words))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_teacher_of_another_process_or_vocabulary_is_refused(runs, trained, tmp_path):
    with pytest.raises(UserError, match="parameterization"):
        cli.run(runs("sdtt", "run", *ROUNDS, f"method.teacher={trained('sedd')}"))
    source = read_checkpoint(trained("mdlm"))
    state = dict(source["state_dict"])
    name = next(key for key in state if key.endswith("vocab_embed.embedding"))
    state[name] = state[name][:-3]
    torch.save({"state_dict": state}, tmp_path / "fewer.ckpt")
    with pytest.raises(UserError, match="a teacher has its student's vocabulary"):
        cli.run(runs("sdtt", "run", *ROUNDS, f"method.teacher={tmp_path / 'fewer.ckpt'}"))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_another_teacher_may_not_take_over(runs, tmp_path):
    words = (*ROUNDS, *KEEP)
    cli.run(runs("mdlm", "teacher"))
    teacher = f"method.teacher={last(tmp_path / 'teacher')}"
    cli.run(runs("sdtt", "run", *words, teacher))
    folder = tmp_path / "run" / "checkpoints"
    for path in folder.glob("*.ckpt"):
        if path.name not in ("step-1.ckpt", "step-2.ckpt"):
            path.unlink()
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    cli.run(runs("mdlm", "teacher", "trainer.max_steps=6"))  # the same path, other weights
    with pytest.raises(UserError, match="bring that teacher back"):
        cli.run(runs("sdtt", "run", *words, teacher))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept


def test_rounds_keep_their_length(runs, teacher, tmp_path):
    """A longer run would move the rounds under a student that has passed some."""
    cli.run(runs("sdtt", "run", *ROUNDS, teacher))
    kept = last(tmp_path / "run").read_bytes()
    with pytest.raises(UserError, match="makes rounds of 8 steps, and the run's have 4: keep"):
        cli.run(runs("sdtt", "run", *ROUNDS, teacher, "trainer.max_steps=16"))
    assert last(tmp_path / "run").read_bytes() == kept
