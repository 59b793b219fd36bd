"""Two processes (gloo, on this machine) do what one does: training with its average, figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.train import module as training

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "host=builtin",
    "model=lkf-tiny",
    "loss=mixture",
    "loss.backward=drawn",
    "model.num_components=3",
    "model.latent_blocks=1",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    "model.dropout=0.1",
    "data.train_sequences=40",
    "data.valid_sequences=18",
    "loader.global_batch_size=8",
    "loader.batch_size=4",
    "loader.eval_batch_size=4",  # five batches, an uneven share for two
    "loader.num_workers=0",
    "training.ema=0.9",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "trainer.max_steps=6",
    "trainer.log_every_n_steps=1",
    "checkpointing.every_n_steps=3",
    "lr_scheduler.num_warmup_steps=2",
)
ONE = ("trainer.devices=1", "trainer.val_check_interval=6")  # in micro-batches, two a step
TWO = ("trainer.devices=2", "trainer.val_check_interval=3")


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent))),
        "LKF_CACHE": str(folder / "cache"),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def finished(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, (out + err)[-3000:]


def started(command: list[str], folder: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, env=environment(folder) | more, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def main_py(folder: Path, *overrides: str) -> None:
    finished([started([sys.executable, str(ROOT / "main.py"), *overrides], folder)])


def in_this_process(folder: Path, *overrides: str) -> Any:
    register_resolvers()
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        config = compose("config", [*overrides, f"data.cache_dir={folder / 'cache'}"])
    return cli.run(config)


def checkpoint(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def ddp(folder: Path) -> Path:
    """A run of two processes that Lightning starts."""
    main_py(folder, *TINY, *TWO, f"run_dir={folder / 'ddp'}")
    return folder / "ddp"


def assert_close(one: dict[str, Any], other: dict[str, Any], rtol: float, atol: float) -> None:
    """Weights, averages and the optimizer's moments."""
    assert one["global_step"] == other["global_step"]
    for name, tensor in one["state_dict"].items():
        torch.testing.assert_close(tensor, other["state_dict"][name], rtol=rtol, atol=atol)
    pairs = zip(one["ema"]["shadow_params"], other["ema"]["shadow_params"], strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    states = (each["optimizer_states"][0]["state"] for each in (one, other))
    first, second = states
    assert first.keys() == second.keys()
    for key, moments in first.items():
        torch.testing.assert_close(
            moments["exp_avg"], second[key]["exp_avg"], rtol=rtol, atol=atol
        )


@pytest.mark.slow
def test_ddp_trains_as_one_process_does(
    folder: Path, ddp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process that takes the two ranks' micro-batches in turn, each under its rank's draws."""
    real = training.seed_position

    def by_rank(seed: int, *position: Any) -> None:
        kind, number, rank = position
        turn = divmod(number, 2) if kind == "train" else (number, rank)
        real(seed, kind, *turn)

    monkeypatch.setattr(training, "seed_position", by_rank)
    in_this_process(folder, *TINY, *ONE, f"run_dir={folder / 'alone'}")
    assert_close(checkpoint(folder / "alone"), checkpoint(ddp), rtol=1e-4, atol=2e-6)
    apart = checkpoint(ddp)
    trained, averaged = apart["state_dict"], apart["ema"]["shadow_params"][0]
    table = trained["backbone.trunk.vocab_embed.embedding"]
    assert (table - averaged).abs().max() > 1e-5  # the average is one, and not the weights


@pytest.mark.slow
def test_two_launchers_are_two_nodes(folder: Path, ddp: Path) -> None:
    """torchrun on each node, nodes counted from its variables: the same bits as two devices."""
    port = str(20_000 + os.getpid() % 20_000)
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1",
               "--rdzv_backend=static", "--rdzv_id=1", "--master_addr=127.0.0.1",
               f"--master_port={port}"]  # fmt: skip
    # a node of one device takes what a device of two would
    given = [*TINY, "trainer.val_check_interval=3", f"run_dir={folder / 'nodes'}"]
    finished([
        started([*command, f"--node_rank={rank}", str(ROOT / "main.py"), *given], folder)
        for rank in (0, 1)
    ])  # fmt: skip
    assert_close(checkpoint(folder / "nodes"), checkpoint(ddp), rtol=0, atol=0)
    assert (folder / "nodes" / "metrics.csv").read_text() == (ddp / "metrics.csv").read_text()


@pytest.mark.slow
def test_figures_do_not_depend_on_the_number_of_processes(folder: Path, ddp: Path) -> None:
    """A validation's, those of few steps, and each sequence's."""
    source = (f"eval.checkpoint_path={ddp / 'checkpoints' / 'last.ckpt'}", "mode=ppl_eval",
              "eval.steps=[1,3]")  # fmt: skip
    alone = in_this_process(folder, *TINY, *ONE, *source, f"run_dir={folder / 'one'}")
    main_py(folder, *TINY, *TWO, *source, f"run_dir={folder / 'two'}")
    shared = json.loads((folder / "two" / "ppl_eval.json").read_text())
    assert shared["few_step_nats"] == alone["few_step_nats"]
    assert shared["metrics"].keys() == alone["metrics"].keys()
    for name, value in alone["metrics"].items():
        assert shared["metrics"][name] == pytest.approx(value, rel=1e-12), name
    ours, theirs = alone["likelihood"]["nelbo"], shared["likelihood"]["nelbo"]
    assert ours["n"] == theirs["n"] == 18 and theirs["se"] == pytest.approx(ours["se"], rel=1e-9)


@pytest.mark.slow
def test_shards_with_an_average_are_ddp_and_resume(folder: Path, ddp: Path) -> None:
    """FSDP2: half of the weights and averages a process, whole checkpoints, the bits of DDP."""
    look = ("+callbacks.look._target_=look_at_shards.LookAtShards",
            f"+callbacks.look.folder={folder / 'shares'}", "strategy=fsdp2")  # fmt: skip
    run = (*TINY, *TWO, *look, f"run_dir={folder / 'shards'}")
    main_py(folder, *run, "trainer.max_steps=3")
    main_py(folder, *run)
    assert_close(checkpoint(folder / "shards"), checkpoint(ddp), rtol=0, atol=0)
    shares = [[float(one) for one in (folder / "shares" / str(rank)).read_text().split()]
              for rank in (0, 1)]  # fmt: skip
    for first, second in zip(*shares, strict=True):
        assert first + second == pytest.approx(1) and 0.4 < first < 0.65
