"""Which records may stand side by side in a table.

All of a record's identity must agree with the others', but for what tables are there to compare
(`COMPARED`). So a setting that is new must agree, without a word here.
"""

from __future__ import annotations

from collections.abc import Iterable

from lkf_plugin.errors import UserError
from lkf_plugin.records.identity import leaves
from lkf_plugin.records.record import Record

# What may differ between the records of a table: groups, and single keys.
COMPARED = (
    "subject.host",
    "subject.method",
    "subject.checkpoint",
    "subject.model",
    "subject.process",
    "settings.decode",
    "settings.sampling.steps",
    "settings.sampling.predictor",
    "settings.sampling.noise_removal",
    "settings.training",  # of a likelihood: how a method draws its times
    "settings.eval",  # what stands beside the figure
    "settings.matched",
    "settings.end",
    "settings.trajectories",
    "settings.draws",
    "settings.estimator",
    "settings.validation",
)


def must_agree(record: Record) -> dict[str, object]:
    """What must be the same in every other record that has it, by its place."""
    tree = {"subject": record.subject, "settings": record.settings}
    held = dict(leaves(tree))
    held |= {f"labels.{key}": record.labels.get(key) for key in ("corpus", "wrap", "tokenizer")}
    return {
        path: value
        for path, value in held.items()
        if not any(path == one or path.startswith(f"{one}.") for one in COMPARED)
    }


def agree(one: Record, other: Record) -> bool:
    """Whether two records may stand side by side."""
    ours, theirs = must_agree(one), must_agree(other)
    return all(ours[key] == theirs[key] for key in ours.keys() & theirs.keys())


def check_comparable(records: Iterable[Record], where: str) -> None:
    """Refuses records that must not stand side by side.

    Raises:
        UserError: names the key, both values and both cells.
    """
    first: dict[str, tuple[object, str]] = {}
    for record in records:
        for key, theirs in must_agree(record).items():
            ours, name = first.setdefault(key, (theirs, record.name))
            if ours != theirs:
                raise UserError(
                    f"{where}: {name} has {key}={ours} and {record.name} has {key}={theirs}: "
                    "they must not stand side by side, so measure one of them again or keep them "
                    "in different folders."
                )
