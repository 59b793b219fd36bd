"""The record of a measurement: what was measured, how, what came out, and on what machine.

Runs, cells of tables, studies, comparisons, benchmarks and the demo are all kept in it. A record
holds no time stamp (a timing has its day as a label) and no path of the machine that it was made
on; its keys are sorted, and floats read back the same, so that equal inputs give equal bytes::

    {"format": 2, "kind": "samples", "name": "sotu.M8.commit.J4", "digest": "...",
     "subject": {"checkpoint": "...", "corpus": "...", "model": {...}, ...},
     "settings": {"decode": {...}, "sampling": {...}, "samples": 512, "seed": 0, ...},
     "metrics": {"entropy": {"value": 4.1, "se": 0.01, "n": 512}, ...},
     "series": {}, "labels": {"row": "commit", ...},
     "code": "0.1.0+g...", "libraries": {...}, "machine": {...}}

``digest`` is that of kind, subject and settings (``identity``), and its first digits end the
file's name.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import SHORT, canonical, identity_digest

FORMAT = 2
Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement.

    Attributes:
        kind: what sort of measurement: ``samples``, ``likelihood``, ``information``, ...
        name: for people, and the start of the file's name: letters, digits and ``._=+-``.
        subject: what was measured: digests of checkpoint, corpus and tokenizer, network, process.
        settings: everything else that the metrics depend on.
        metrics: estimates by name; a judge's carry the judge (``gen_ppl[gpt2-large]``).
        series: plain data beside: repetitions, curves, tables.
        labels: names for tables; no number depends on them.
        code: version of this package (``provenance.code_version``).
        libraries: versions by package name (``provenance.library_versions``).
        machine: description of the machine (``provenance.machine``); never compared.

    Raises:
        UserError: a field of the wrong kind; names it.
    """

    kind: str
    name: str
    subject: Mapping[str, Any]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Estimate]
    code: str
    libraries: Mapping[str, str]
    series: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Scalar] = field(default_factory=dict)
    machine: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @functools.cached_property
    def digest(self) -> str:
        """Of kind, subject and settings."""
        return identity_digest(self.kind, self.subject, self.settings)

    @property
    def file_name(self) -> str:
        """Name, and the digest's first digits."""
        return f"{self.name}-{self.digest[:SHORT]}.json"

    def to_json(self) -> str:
        """The record as text, the same for equal records."""
        content = {"format": FORMAT, "digest": self.digest, **dataclasses.asdict(self)}
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"

    # --- what tables ask for; None where it does not apply ---------------------------------------

    def setting(self, path: str) -> Any:
        """``settings`` at a dotted path."""
        value: Any = self.settings
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def value(self, metric: str) -> float | None:
        """A metric's value."""
        estimate = self.metrics.get(metric)
        return None if estimate is None else estimate.value

    @property
    def row(self) -> str:
        """How it was decoded, or what else sets it apart in a table."""
        return str(self.labels.get("row") or self.kind)

    @property
    def corpus(self) -> str:
        """Name of the corpus."""
        return str(self.labels.get("corpus"))

    @property
    def method(self) -> str:
        """``lkf``, or another method's name."""
        return str(self.subject.get("method"))

    @property
    def num_components(self) -> int:
        """M; one for networks without a latent."""
        return int((self.subject.get("model") or {}).get("num_components") or 1)

    @property
    def policy(self) -> str | None:
        """The decoding policy."""
        return self.setting("decode.policy")

    @property
    def steps(self) -> int | None:
        """J."""
        return self.setting("sampling.steps")

    @property
    def samples(self) -> int | None:
        """Samples that were drawn, or sequences that were evaluated."""
        return self.setting("samples") or self.setting("sequences")

    @property
    def precision(self) -> str:
        """In words."""
        parts = self.setting("precision") or {}
        return ", ".join(f"{key} {parts[key]}" for key in ("network", "draws") if key in parts)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")
_GROUPS = ("subject", "settings", "metrics", "series", "labels", "libraries", "machine")


def _check(record: Record) -> None:
    """Raises a UserError that names the first field that is wrong."""
    for name in ("kind", "name", "code"):
        if not isinstance(getattr(record, name), str):
            raise UserError(f"{name} must be a text, not {getattr(record, name)!r}")
    for name in ("kind", "name"):
        if not _NAME.fullmatch(getattr(record, name)):
            raise UserError(
                f"{name} must be made of letters, digits and ._=+-, not {getattr(record, name)!r}"
            )
    for name in _GROUPS:
        group = getattr(record, name)
        if not isinstance(group, Mapping) or not all(isinstance(key, str) for key in group):
            raise UserError(f"{name} must be a mapping of names, not {group!r}")
    if not record.metrics and not record.series:
        raise UserError("metrics must hold at least one estimate")
    for name in ("subject", "settings", "series"):
        for key, value in getattr(record, name).items():
            try:
                canonical(value)
            except ValueError as error:
                raise UserError(f"{name}.{key} must be plain: {error}") from None
    for name, kinds in (("labels", _SCALARS), ("machine", _SCALARS), ("libraries", (str,))):
        for key, value in getattr(record, name).items():
            if not isinstance(value, kinds) or _not_finite(value):
                raise UserError(f"{name}.{key} must be a plain value, not {value!r}")
    for key, estimate in record.metrics.items():
        _check_estimate(key, estimate)


_SCALARS = (str, int, float, bool, type(None))


def _check_estimate(name: str, estimate: Estimate) -> None:
    if not isinstance(estimate, Estimate):
        raise UserError(f"metrics.{name} must be an estimate, not {estimate!r}")
    for part, value in (("value", estimate.value), ("se", estimate.se)):
        if value is None and part == "se":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or _not_finite(value):
            raise UserError(f"metrics.{name}.{part} must be a finite number, not {value!r}")
    if estimate.se is not None and estimate.se < 0:
        raise UserError(f"metrics.{name}.se must not be negative, not {estimate.se}")
    n = estimate.n
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise UserError(f"metrics.{name}.n must be a positive integer, not {n!r}")


def _not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
