"""Which cells the tables need."""

from __future__ import annotations

import pytest

from experiments.paper.plan import MIXTURES, jobs_of


@pytest.mark.parametrize("models", [(), ("mdlm", "duo", "sdtt-r1")])
def test_what_reveals_masks_has_its_few_step_likelihood_in_the_main_table(
    models: tuple[str, ...],
) -> None:
    """Every row of LKF does, whatever other methods stand beside; DUO has no such bound."""
    jobs = jobs_of(("main",), (1, 4), models)
    own = {"M1", *(f"M{M}" for M in MIXTURES)}
    assert {job.model for job in jobs if job.kind == "few_step"} == own | {*models} - {"duo"}
