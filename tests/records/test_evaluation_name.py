"""File names of evaluations: the same for the same, others for others."""

from __future__ import annotations

import pytest

from lkf_plugin.records.evaluation_name import evaluation_name

SETTINGS = {"seed": 1, "sampling.steps": 4, "decode.temperature": 1.0, "run_dir": "/a"}


def name(checkpoint: str = "c", **changes: object) -> str:
    settings = {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    return evaluation_name(settings, checkpoint, "commit", steps=4)


def test_it_shows_what_distinguishes_it() -> None:
    assert name().startswith("commit.J4.seed1.") and len(name().rpartition(".")[2]) == 8
    assert evaluation_name(SETTINGS, "c", "like lihood").startswith("like_lihood.seed1.")


@pytest.mark.parametrize(
    "changes", [{"seed": 2}, {"decode__temperature": 0.9}, {"checkpoint": "d"}, {"new__key": None}]
)
def test_whatever_a_number_may_depend_on_changes_it(changes: dict[str, object]) -> None:
    assert name(**changes) != name()  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["run_dir", "checkpointing__save_dir", "loader__num_workers"])
def test_places_do_not(key: str) -> None:
    assert name(**{key: "x"}) == name()
