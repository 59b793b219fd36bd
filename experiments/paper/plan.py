"""Which cells each of the paper's decoding tables needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lkf_plugin.evaluate.policies import policy_settings

TABLES = (
    "main",
    "decode",
    "bestofn",
    "commitm",
    "deferred",
    "policynfe",
    "probedepth",
    "percomp",
)
MIXTURES = (4, 8)
PROBE_J = DEFERRED_J = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Job:
    """One cell of one model.

    Attributes:
        components: M of the model.
        kind: ``policy``, ``likelihood``, ``information``, ``ends`` or ``matched``.
        policy: name in ``configs/decode``, for ``policy`` and ``matched``.
        changes: to its settings, as sorted pairs.
        steps: J.
    """

    components: int
    kind: str
    policy: str = ""
    changes: tuple[tuple[str, Any], ...] = ()
    steps: int | None = None

    def settings(self) -> dict[str, Any]:
        """The policy's settings."""
        return policy_settings(self.policy, **dict(self.changes))


def _policy(M: int, steps: int, name: str, **changes: Any) -> Job:
    """Only what differs from the policy's file is a change: the same cell is the same job."""
    usual = policy_settings(name)
    changes = {key: value for key, value in changes.items() if usual[key] != value}
    return Job(M, "policy", name, tuple(sorted(changes.items())), steps)


def _main(grid: Sequence[int], last: int) -> list[Job]:
    jobs = [_policy(1, J, "best_of_n") for J in grid] + [_policy(1, J, "commit") for J in grid]
    jobs += [_policy(M, J, "best_of_m") for M in MIXTURES for J in grid]
    for M in (1, *MIXTURES):
        jobs += [Job(M, "likelihood"), Job(M, "information", steps=min(last, 8))]
    return [*jobs, Job(1, "ends")]


def _decode(grid: Sequence[int], last: int) -> list[Job]:
    jobs = []
    for M in MIXTURES:
        jobs += [
            _policy(M, last, "best_of_m"),
            _policy(M, last, "best_of_m", shared_noise=True),
            _policy(M, last, "best_of_m", selector="evidence", shared_noise=True),
            _policy(M, last, "best_of_n", num_candidates=M),
            _policy(M, last, "best_of_m", selector="random"),
            _policy(M, last, "halving"),
            _policy(M, last, "commit"),
            _policy(M, last, "best_of_m", selector="softmax"),
            _policy(M, last, "best_of_m", selector="centred"),
            _policy(M, last, "calibrated"),
        ]
    return [*jobs, *(_policy(1, last, "best_of_n", num_candidates=M) for M in MIXTURES)]


def _bestofn(grid: Sequence[int], last: int) -> list[Job]:
    jobs = []
    for J in grid:
        jobs += [
            _policy(1, J, "commit"),
            _policy(8, J, "commit"),
            _policy(1, J, "best_of_n"),
            _policy(8, J, "best_of_m"),
            Job(1, "matched", "best_of_n", (), J),
        ]
    return jobs


def _commitm(grid: Sequence[int], last: int) -> list[Job]:
    jobs = [_policy(M, J, "commit") for M in (1, *MIXTURES) for J in grid]
    return jobs + [_policy(M, J, "best_of_m") for M in MIXTURES for J in grid]


def _deferred(grid: Sequence[int], last: int) -> list[Job]:
    jobs = []
    for M in MIXTURES:
        jobs += [_policy(M, last, "deferred", switch_step=j) for j in DEFERRED_J if j <= last]
        jobs.append(_policy(M, last, "commit"))
    return jobs


def _policynfe(grid: Sequence[int], last: int) -> list[Job]:
    jobs = []
    for M in MIXTURES:
        for J in grid:
            jobs += [
                _policy(M, J, "commit"),
                _policy(M, J, "best_of_m", selector="random"),
                _policy(M, J, "best_of_m"),
                _policy(M, J, "best_of_m", selector="evidence"),
                _policy(M, J, "calibrated"),
            ]
            if J >= 4:
                jobs.append(_policy(M, J, "halving", shared_noise=False))
    return jobs


def _probedepth(grid: Sequence[int], last: int) -> list[Job]:
    depths = [j for j in PROBE_J[1:] if j <= last]
    return [_policy(M, last, "probe", probe_step=j) for M in MIXTURES for j in depths]


def _percomp(grid: Sequence[int], last: int) -> list[Job]:
    jobs = []
    for k in range(8):
        jobs.append(_policy(8, last, "solo", component=k))
        jobs.append(_policy(8, last, "solo", component=k, num_candidates=8))
    return [*jobs, _policy(8, last, "commit"), _policy(8, last, "best_of_m")]


_PLANS = {
    "main": _main,
    "decode": _decode,
    "bestofn": _bestofn,
    "commitm": _commitm,
    "deferred": _deferred,
    "policynfe": _policynfe,
    "probedepth": _probedepth,
    "percomp": _percomp,
}


def jobs_of(tables: Sequence[str], grid: Sequence[int]) -> list[Job]:
    """Every cell that the tables need, once each; cooled controls last, cheap cells first.

    Args:
        tables: names of ``TABLES``.
        grid: J of the step grid; tables at one J take its last.
    """
    needed = {job for table in tables for job in _PLANS[table](grid, max(grid))}
    kinds = ("policy", "ends", "likelihood", "information", "matched")
    return sorted(
        needed,
        key=lambda job: (kinds.index(job.kind), job.components, job.steps or 0, repr(job)),
    )
