"""SLURM by submitit: what is asked of it, and a job that is signalled, requeued and ends as one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.config.resolvers import device_count, node_count
from lkf_plugin.runs import processes
from tests.train.test_resume import TINY, assert_same, final, main_py, signal_at

submitit = pytest.importorskip("submitit", reason="pip install 'lkf-plugin[slurm]'")
pytest.importorskip("hydra_plugins.hydra_submitit_launcher")

SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NAME": "lkf",
    "SLURM_NTASKS": "16",
    "SLURM_NTASKS_PER_NODE": "8",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NODELIST": "node[07-08]",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}


def test_the_slurm_group_says_what_sbatch_is_told() -> None:
    register_resolvers()
    given = ["hydra/launcher=slurm", "hydra.launcher.nodes=2", "hydra.launcher.partition=gpu"]
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        launcher = compose("config", given, return_hydra_config=True).hydra.launcher
    assert launcher["_target_"].endswith("SlurmLauncher")
    from submitit.slurm.slurm import _make_sbatch_string

    told = _make_sbatch_string(
        command="train", folder="jobs", job_name=launcher.name, partition=launcher.partition,
        nodes=launcher.nodes, gpus_per_node=launcher.gpus_per_node, time=launcher.timeout_min,
        ntasks_per_node=launcher.tasks_per_node, cpus_per_task=launcher.cpus_per_task,
        signal_delay_s=launcher.signal_delay_s,
        additional_parameters=dict(launcher.additional_parameters),
    )  # fmt: skip
    lines = [line.removeprefix("#SBATCH --") for line in told.splitlines()]
    assert {"requeue", "nodes=2", "gpus-per-node=8", "ntasks-per-node=8"} <= set(lines)
    assert {"signal=USR2@300", "partition=gpu", "open-mode=append", "time=1440"} <= set(lines)


def test_nodes_and_processes_are_read_from_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # is taken back after the test
        monkeypatch.delenv(name)
    assert node_count() == 1
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert node_count() == 2
    processes._name_those_of_srun()
    told = {name: os.environ[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR")}
    assert told == {"WORLD_SIZE": "16", "RANK": "9", "LOCAL_RANK": "1", "MASTER_ADDR": "node07"}
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")  # a shell on a node
    assert node_count() == 1


def test_nodes_and_processes_are_read_from_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"TORCHELASTIC_RUN_ID": "1", "GROUP_WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "4"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert (node_count(), device_count()) == (3, 4)


@pytest.mark.slow
def test_a_requeued_job_ends_as_an_unbroken_run(tmp_path: Path) -> None:
    """submitit's own executor: its signal after step 5, its handler, its second start."""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    launcher = ("-m", "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=9",
                f"hydra.launcher.submitit_folder={tmp_path / 'jobs'}/%j")  # fmt: skip
    told = signal_at(5, "on_train_batch_end", "SIGUSR2")
    told.append(f"+callbacks.signal.mark={tmp_path / 'sent'}")  # the second start gets none
    done = main_py(*launcher, *TINY, *told, f"run_dir={broken}", cwd=tmp_path)
    logs = "\n".join(path.read_text() for path in (tmp_path / "jobs").rglob("*_log.*"))
    assert done.returncode == 0, done.stderr + logs
    assert "SIGUSR2: the run is saved after the batch in hand" in logs
    assert "Requeued job" in logs and "going on from step 5 of 12" in logs
    assert main_py(*TINY, f"run_dir={unbroken}", cwd=tmp_path).returncode == 0
    assert_same(final(broken), final(unbroken))


@pytest.mark.slow
def test_a_job_script_is_told_by_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without submitit: saved, and left with 128 + SIGUSR1, after which a script requeues."""
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    told = signal_at(5, "on_train_batch_end", "SIGUSR1")
    done = main_py(*TINY, *told, f"run_dir={tmp_path / 'run'}", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGUSR1
    assert "SIGUSR1: saved step 5" in done.stderr and "Traceback" not in done.stderr
