"""Which cells each of the paper's decoding tables needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.run_records import FIRST_SEED, OWN
from lkf_plugin.methods.method import METHODS, uses_steps

RERANKED = ("mdlm", "duo")  # also as the likeliest of eight chains

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
KINDS = (
    "policy", OWN, "ends", "likelihood", "few_step", "information", "coupling", "matched",
)  # fmt: skip
COUPLED = ("duo", "redi")  # what makes a text of a noise, and is made of such pairs
PROBE_J = DEFERRED_J = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Job:
    """One cell of one model.

    Attributes:
        model: ``M8``, or another method's name with its round: ``sedd``, ``sdtt-r2``.
        kind: one of ``KINDS``.
        policy: name in ``configs/decode``, for ``policy`` and ``matched``.
        changes: to its settings, as sorted pairs.
        steps: J.
        seed: of the model's training.
    """

    model: str
    kind: str
    policy: str = ""
    changes: tuple[tuple[str, Any], ...] = ()
    steps: int | None = None
    seed: int = 1

    @property
    def name(self) -> str:
        """The model's, and its training's seed but for the first: ``M8-seed2``."""
        return named(self.model, self.seed)

    def settings(self) -> dict[str, Any]:
        """The policy's settings."""
        return policy_settings(self.policy, **dict(self.changes))


def named(model: str, seed: int) -> str:
    """``M8``, and of another training seed than the first ``M8-seed2``."""
    return model if seed == FIRST_SEED else f"{model}-seed{seed}"


def _policy(M: int | str, steps: int, name: str, **changes: Any) -> Job:
    """Only what differs from the policy's file is a change: the same cell is the same job."""
    usual = policy_settings(name)
    changes = {key: value for key, value in changes.items() if usual[key] != value}
    model = f"M{M}" if isinstance(M, int) else M
    return Job(model, "policy", name, tuple(sorted(changes.items())), steps)


def _main(grid: Sequence[int], last: int) -> list[Job]:
    jobs = [_policy(1, J, "best_of_n") for J in grid] + [_policy(1, J, "commit") for J in grid]
    jobs += [
        _policy(M, J, name) for name in ("best_of_m", "commit") for M in MIXTURES for J in grid
    ]
    for M in (1, *MIXTURES):
        model = f"M{M}"
        jobs += [Job(model, "likelihood"), Job(model, "few_step")]
        jobs.append(Job(model, "information", steps=min(last, 8)))
    return [*jobs, Job("M1", "ends")]


def main_of_method(model: str, grid: Sequence[int], grammar: bool) -> list[Job]:
    """The main table's cells of another method; ``model`` is its name with its round."""
    method = model.partition("-")[0]
    jobs = [Job(model, "likelihood")]
    if METHODS[method].network == "latent":
        jobs.append(Job(model, "few_step"))
        return jobs + [_policy(model, J, name) for name in ("commit", "best_of_m") for J in grid]
    if METHODS[method].step_model is not None:
        jobs.append(Job(model, "few_step"))
    if not uses_steps(method):
        return [*jobs, Job(model, OWN, steps=max(grid))]
    jobs += [Job(model, OWN, steps=J) for J in grid]
    if method in COUPLED and grammar:
        jobs.append(Job(model, "coupling"))
    if method in RERANKED:
        jobs += [_policy(model, J, "best_of_n") for J in grid]
    return jobs


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
            Job("M1", "matched", "best_of_n", (), J),
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


def jobs_of(
    tables: Sequence[str],
    grid: Sequence[int],
    models: Sequence[str] = (),
    main_only: Sequence[str] = (),
    seeds: Sequence[int] = (FIRST_SEED,),
    grammar: bool = False,
) -> list[Job]:
    """Every cell that the tables need, once each; cooled controls last, cheap cells first.

    Args:
        tables: names of ``TABLES``.
        grid: J of the step grid; tables at one J take its last.
        models: other methods, which the main table alone has.
        main_only: models that only the main table has although others name them.
        seeds: trainings of the main table's models; the other tables have the first alone.
        grammar: whether the corpus has one, by which couplings are measured.
    """
    needed: set[Job] = set()
    for table in tables:
        cells = _PLANS[table](grid, max(grid))
        if table != "main":
            needed |= {job for job in cells if job.model not in main_only}
            continue
        cells += [job for model in models for job in main_of_method(model, grid, grammar)]
        for seed in seeds:
            once = "ends" if seed != FIRST_SEED else ""  # of the corpus, not of a training
            needed |= {replace(job, seed=seed) for job in cells if job.kind != once}
    return sorted(
        needed,
        key=lambda job: (
            job.seed, KINDS.index(job.kind), job.model, job.steps or 0, repr(job),
        ),
    )  # fmt: skip
