"""The pairs of a coupling on disk: written once, part by part, known by a digest.

A folder of one round holds ``plan.json`` (what the pairs are made of), ``part-N.npy`` (noise and
text, [2, G, L]) and, once all parts are there, ``digests.json``. Every part is a function of the
plan and of its number alone, so that parts which were lost are made again as they were.

Shape legend: P pairs, G pairs of a part, L positions.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically

PLAN, DIGESTS = "plan.json", "digests.json"
OTHERS = {"teacher": "another teacher", "texts": "other texts"}


@dataclass(frozen=True)
class PairPlan:
    """What decides every pair.

    Attributes:
        teacher: digest of the weights that made them.
        pairs: P.
        part: G; the last part has what is left.
        length: L.
        vocab_size: K.
        steps: of each chain.
        last_pass: of each chain.
        float64_draws: precision of the draws.
        seed: of the round.
        texts: digest of the texts that the starts of a perturbed coupling are made of, else empty.
    """

    teacher: str
    pairs: int
    part: int
    length: int
    vocab_size: int
    steps: int
    last_pass: str
    float64_draws: bool
    seed: int
    texts: str = ""

    def sizes(self) -> list[int]:
        """Pairs of each part."""
        whole, rest = divmod(self.pairs, self.part)
        return [self.part] * whole + [rest] * (rest > 0)


class Pairs(NamedTuple):
    """Noise and text of all pairs, int64 [P, L]."""

    xT_PL: Tensor
    x0_PL: Tensor


MakePart = Callable[[int, int], tuple[Tensor, Tensor]]
"""(number, size) -> noise and text, [G, L] each."""


def make_missing(folder: Path, plan: PairPlan, make: MakePart, rank: int, world: int) -> int:
    """Makes the parts of this process that are not there yet; returns how many.

    Raises:
        UserError: the folder holds pairs of another plan.
    """
    _keep_plan(folder, plan)
    made = 0
    for number, size in enumerate(plan.sizes()):
        if number % world != rank or _part(folder, number).is_file():
            continue
        pair = torch.stack(make(number, size)).cpu().numpy().astype(np.int32)
        content = io.BytesIO()
        np.save(content, pair)
        write_atomically(_part(folder, number), content.getvalue())
        made += 1
    return made


def read_pairs(folder: Path, plan: PairPlan) -> Pairs:
    """All pairs, checked; the first reading leaves their digests, which later ones must meet.

    Raises:
        UserError: a part is missing, cut short or was changed, or is of another plan.
    """
    _keep_plan(folder, plan)
    known = _read_json(folder / DIGESTS)
    digests, parts = {}, []
    for number, size in enumerate(plan.sizes()):
        path = _part(folder, number)
        try:
            content = path.read_bytes()
            pair = np.load(io.BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(path) from error
        digests[path.name] = hashlib.sha256(content).hexdigest()
        shape = (2, size, plan.length)
        if pair.shape != shape or known and known.get(path.name) != digests[path.name]:
            raise _damaged(path)
        parts.append(torch.from_numpy(pair.astype(np.int64)))
    if known is None:
        write_atomically(folder / DIGESTS, json.dumps(digests, indent=1) + "\n")
    xT_PL, x0_PL = torch.cat(parts, dim=1)
    return Pairs(xT_PL, x0_PL)


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05d}.npy"


def _keep_plan(folder: Path, plan: PairPlan) -> None:
    wanted, there = asdict(plan), _read_json(folder / PLAN)
    if there is None:
        write_atomically(folder / PLAN, json.dumps(wanted, indent=1) + "\n")
        return
    for key, value in wanted.items():
        if there.get(key, "") != value:  # folders older than a key have none of what it adds
            shown = OTHERS.get(key) or f"{key}={there.get(key)}"
            raise UserError(
                f"{folder} holds pairs of {shown}, and this run needs others: move that folder "
                "away, or give another run_dir."
            )


def _read_json(path: Path) -> dict[str, object] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(content, dict):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path} is missing, cut short or was changed: delete {path.parent}, and the same command "
        "makes its pairs again as they were."
    )
