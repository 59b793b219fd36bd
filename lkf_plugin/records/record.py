"""The result record: one JSON file a cell, with all that its numbers depend on.

Tables and figures are made from records only. A record holds no time stamp and no path of the
machine it was made on, its keys are sorted, and floats are written so that they read back the
same: equal inputs give equal bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate

SCHEMA_VERSION = 1
LIKELIHOOD = "likelihood"  # row of the records that hold a likelihood

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """One cell of a table or one point of a figure. ``None`` means: does not apply.

    Attributes:
        cell: name of the cell, also the file's name: letters, digits and ``._=+-``.
        metrics: estimates by name; a judge's metrics carry the judge (``gen_ppl[gpt2-large]``).
        host: ``mdlm`` or ``builtin``.
        code: version of this package (``provenance.code_version``).
        libraries: versions by package name (``provenance.library_versions``).
        corpus: name of the corpus that was trained and evaluated on.
        corpus_digest: digest of the prepared corpus.
        wrap: whether documents are packed into windows (MDLM's ``data.wrap``).
        tokenizer: name of the tokenizer.
        tokenizer_digest: digest of its files.
        checkpoint_digest: digest of the checkpoint (``provenance.checkpoint_digest``).
        ema: whether the averaged weights were used.
        num_components: M.
        latent_blocks: L_k, blocks that see the latent.
        policy: decoding policy, or ``None`` for a likelihood.
        steps: J, denoising steps.
        calls: network calls that one kept sample costs, scoring included.
        samples: number of samples or of evaluated sequences.
        length: tokens of a sequence, L.
        precision: floating type that sampling or scoring ran in.
        judge: label of the judge.
        judge_revision: commit of a hub judge.
        judge_dtype: precision of the judge's weights.
        seed: of the run.
        settings: whatever else the numbers depend on (selector, score_draws, predictor, ...).
        machine: description of the machine (``provenance.machine``); never compared.
    """

    cell: str
    metrics: dict[str, Estimate]
    host: str
    code: str
    libraries: dict[str, str]
    corpus: str
    corpus_digest: str
    wrap: bool
    tokenizer: str
    tokenizer_digest: str
    checkpoint_digest: str | None
    ema: bool
    num_components: int
    latent_blocks: int
    policy: str | None
    steps: int | None
    calls: float | None
    samples: int
    length: int
    precision: str
    judge: str | None
    judge_revision: str | None = None
    judge_dtype: str | None = None
    seed: int
    settings: dict[str, Scalar] = field(default_factory=dict)
    machine: dict[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate(self)

    def to_json(self) -> str:
        """The record as text, the same for equal records."""
        content: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, sort_keys=True, indent=2, allow_nan=False) + "\n"


def write_record(record: ResultRecord, folder: Path | str) -> Path:
    """Writes ``<folder>/<cell>.json`` whole or not at all; replaces an older one.

    Returns:
        Path of the file.
    """
    target = Path(folder) / f"{record.cell}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{record.cell}-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(record.to_json())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def read_record(path: Path | str) -> ResultRecord:
    """Reads and checks one record.

    Raises:
        UserError: if the file is missing, is no JSON, has another schema version, lacks a key, has
            a key too many or a value of the wrong kind; names the file and the key.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the result record {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is no result record: it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no result record: it holds no JSON object")
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, this code reads {SCHEMA_VERSION}: make the "
            "record again"
        )
    known = {one.name: one for one in dataclasses.fields(ResultRecord)}
    missing = sorted(set(known) - set(content))
    surplus = sorted(set(content) - set(known))
    if missing or surplus:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has unknown {', '.join(surplus)}"
        raise UserError(f"{path} is no result record: it {wrong}")
    try:
        content["metrics"] = {
            name: Estimate(**value) for name, value in dict(content["metrics"]).items()
        }
        return ResultRecord(**content)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is no valid result record: {error}") from error


def read_records(folder: Path | str) -> list[ResultRecord]:
    """All records under a folder, subfolders included, in the order of their paths."""
    return [read_record(path) for path in sorted(Path(folder).rglob("*.json"))]


_STRINGS = ("cell", "host", "code", "corpus", "corpus_digest", "tokenizer", "tokenizer_digest")
_KINDS: dict[str, tuple[type, ...]] = {
    **{name: (str,) for name in (*_STRINGS, "precision")},
    **{
        name: (str, type(None))
        for name in ("checkpoint_digest", "policy", "judge", "judge_revision", "judge_dtype")
    },
    **{name: (int,) for name in ("num_components", "latent_blocks", "samples", "length", "seed")},
    "steps": (int, type(None)),
    "calls": (int, float, type(None)),
    "wrap": (bool,),
    "ema": (bool,),
    **{name: (dict,) for name in ("metrics", "libraries", "settings", "machine")},
}
_SCALARS = (str, int, float, bool, type(None))


def _validate(record: ResultRecord) -> None:
    """Raises a UserError that names the first field of the wrong kind or out of range."""
    for name, kinds in _KINDS.items():
        value = getattr(record, name)
        # bool is an int to Python; here it is not.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join("null" if one is type(None) else one.__name__ for one in kinds)
            raise UserError(f"{name} must be {wanted}, not {value!r}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", record.cell):
        raise UserError(
            f"cell must be made of letters, digits and ._=+- (it names a file), not {record.cell!r}"
        )
    if record.host not in ("mdlm", "builtin"):
        raise UserError(f"host must be mdlm or builtin, not {record.host!r}")
    for name, least in (("num_components", 1), ("latent_blocks", 0), ("samples", 1), ("length", 1)):
        if getattr(record, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(record, name)}")
    if not record.metrics:
        raise UserError("metrics must hold at least one estimate")
    for name, estimate in record.metrics.items():
        _validate_estimate(name, estimate)
    for name in ("libraries", "settings", "machine"):
        kinds = (str,) if name == "libraries" else _SCALARS
        for key, value in getattr(record, name).items():
            if not isinstance(key, str) or not isinstance(value, kinds) or _not_finite(value):
                raise UserError(f"{name}.{key} must be a plain value, not {value!r}")
    if _not_finite(record.calls):
        raise UserError(f"calls must be finite, not {record.calls}")


def _validate_estimate(name: str, estimate: Estimate) -> None:
    if not isinstance(name, str) or not isinstance(estimate, Estimate):
        raise UserError(f"metrics.{name} must be an Estimate, not {estimate!r}")
    for part, value in (("value", estimate.value), ("se", estimate.se)):
        if value is None and part == "se":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or _not_finite(value):
            raise UserError(f"metrics.{name}.{part} must be a finite number, not {value!r}")
    if isinstance(estimate.n, bool) or not isinstance(estimate.n, int) or estimate.n < 1:
        raise UserError(f"metrics.{name}.n must be a positive integer, not {estimate.n!r}")
    if estimate.se is not None and estimate.se < 0:
        raise UserError(f"metrics.{name}.se must not be negative, not {estimate.se}")


def _not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
