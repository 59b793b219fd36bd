"""The bounds for stored arrays hold what they promise, and every array says where it is from."""

from __future__ import annotations

import re

import pytest
import torch

from tests.golden_arrays import DECIDED, GOLDEN, ClosestRace, assert_matches, decided


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float64, 4e-15), (torch.float32, 4.8e-7)])
def test_rounding_is_allowed_and_more_is_not(dtype, allowed):
    stored = torch.tensor([[-1e6, 0.0], [3.0, 1e-3]], dtype=dtype)
    assert_matches(stored * (1 + 0.7 * allowed), stored, "stored")
    for row, column in ((0, 0), (1, 0), (1, 1)):
        off = stored.clone()
        off[row, column] *= 1 + 2 * allowed
        with pytest.raises(AssertionError, match=rf"^stored\[{row}, {column}\] .* 1 of 4 elements"):
            assert_matches(off, stored, "stored")
    with pytest.raises(AssertionError, match=r"^stored\[0, 1\]"):
        assert_matches(stored + torch.tensor([0, 1e-30], dtype=dtype), stored, "stored")
    shifted = stored + torch.tensor([0.0, 0.5 * allowed], dtype=dtype)
    assert_matches(shifted, stored, "stored", operand=1.0)


def test_not_a_number_another_shape_and_another_type_are_seen():
    stored = torch.tensor([1.0, torch.inf])
    assert_matches(stored.clone(), stored, "stored")
    for wrong in (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 9.0]), stored[:1]):
        with pytest.raises(AssertionError, match="stored"):
            assert_matches(wrong, stored, "stored")
    with pytest.raises(AssertionError, match="float64"):
        assert_matches(stored.double(), stored, "stored")


def test_close_draws_are_seen(monkeypatch):
    chance = torch.tensor([0.25, 0.5])
    assert decided(torch.tensor([0.3, 0.1]), chance)
    assert not decided(torch.tensor([0.3, 0.5 + 1e-6]), chance)
    race = ClosestRace(monkeypatch)
    assert torch.argmax(torch.tensor([[1.0, 2.0], [4.0, 3.0]]), dim=-1).tolist() == [1, 0]
    assert race.margin == 0.25
    assert torch.tensor([2.0, 2.0 - 1e-6, 0.0]).argmax(dim=-1) == 0
    assert race.margin < DECIDED


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("*/")), ids=lambda path: path.name)
def test_every_array_says_where_it_is_from(folder):
    page = (GOLDEN / "README.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {folder.name}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = sorted(name for row in rows for name in re.findall(r"`([\w.-]+\.npz)`", row))
    assert named == sorted(path.name for path in folder.glob("*.npz"))
