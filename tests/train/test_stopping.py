"""Signals are remembered, answered at once with a sentence, and given back."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from lkf_plugin.train.datamodule import _ignore_signals
from lkf_plugin.train.stopping import SIGNALS, Preempted, StopSignals


@pytest.fixture(autouse=True)
def _handlers_as_they_were() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def test_the_first_interrupt_is_remembered_and_the_second_is_the_systems(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    signals = StopSignals()
    signals.listen()
    os.kill(os.getpid(), signal.SIGINT)
    assert signals.received == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # ends the process at once
    told = capfd.readouterr().err
    assert "SIGINT: the run is saved after the batch in hand; a second Ctrl-C leaves" in told
    signals.release()
    assert signal.getsignal(signal.SIGINT) == before


def test_a_second_sigterm_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    signals = StopSignals()
    signals.listen()
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.received == signal.SIGTERM and capfd.readouterr().err.count("SIGTERM") == 1
    signals.release()


def test_the_wait_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    signals = StopSignals()
    signals.listen()
    signals.start_batch()
    signals.start_batch()
    os.kill(os.getpid(), signal.SIGTERM)
    assert re.search(r"\(the last one took 0\.\d s\)", capfd.readouterr().err)
    signals.release()


def test_other_processes_of_a_machine_are_silent(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    signals = StopSignals()
    signals.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.received == signal.SIGTERM and capfd.readouterr().err == ""
    signals.release()


def test_statuses() -> None:
    assert Preempted("saved", signal.SIGINT).code == 130 and Preempted("saved").code == 143


def test_workers_outlive_both_signals() -> None:
    _ignore_signals(0)
    assert all(signal.getsignal(one) == signal.SIG_IGN for one in SIGNALS)


def test_a_launchers_handler_has_its_turn_after_the_save(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its signal is heard where it has a handler, or in a job of SLURM; else it is the system's."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    heard: list[int] = []
    sigterm = signal.getsignal(signal.SIGTERM)
    before = signal.signal(signal.SIGUSR2, lambda signum, frame: heard.append(signum))
    try:
        signals = StopSignals()
        signals.listen()
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGUSR2)
        assert signals.received == signal.SIGUSR2 and heard == []
        signals.hand_over()
        assert heard == [signal.SIGUSR2]
        assert signal.getsignal(signal.SIGTERM) == sigterm  # all are given back
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        in_job = StopSignals()
        in_job.listen()
        os.kill(os.getpid(), signal.SIGUSR1)
        in_job.hand_over()  # nobody else handles it
        assert in_job.received == signal.SIGUSR1
        in_job.release()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert capfd.readouterr().err.count("the run is saved after the batch in hand") == 2
