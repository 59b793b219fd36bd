"""The ``data`` group of the configuration as one checked object."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.data.reading import ERROR_POLICIES, is_text_encoding
from lkf_plugin.errors import UserError

AUTO = "auto"
_ALWAYS = ("kind", "train", "valid", "tokenizer_name_or_path", "cache_dir", "wrap", "streaming")
_TEXT = (
    *("tokenizer_type", "vocab_size", "tokenizer_characters"),
    *("layout", "stride", "drop_digit_windows"),
)
_OWN: dict[str, tuple[str, ...]] = {
    "text": (
        *_TEXT,
        *("path", "valid_path", "valid_fraction", "min_characters", "document", "field"),
        *("encoding", "encoding_errors", "whitespace", "detokenizer"),
    ),
    "sotu": _TEXT,
    "hub": (
        *_TEXT,
        *("path", "dataset", "subset", "revision", "field", "train_split", "valid_split"),
        *("line_ends", "detokenizer"),
    ),
    "text8": ("path", "valid_split"),
    "agreetext": ("clauses", "train_sequences", "valid_sequences", "train_seed", "valid_seed"),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "layout": ("mdlm", "windows"),
    "tokenizer_type": ("wordpiece", "bpe"),
    "document": (None, "paragraph", "line", "file"),
    "whitespace": ("keep", "collapse"),
    "encoding_errors": ERROR_POLICIES,
    "line_ends": ("keep", "strip"),
    "detokenizer": (None, "lm1b", "wikitext"),
    "valid_split": ("validation", "test"),
}
# Smallest and largest whole numbers; null is legal where the type allows it.
_RANGES: dict[str, tuple[int, int]] = {
    "clauses": (1, 1_000),
    "train_sequences": (1, 2**40),
    "valid_sequences": (1, 2**40),
    "vocab_size": (6, 1_000_000),
    "tokenizer_characters": (1_000, 2**40),
    "min_characters": (0, 2**40),
}


@dataclass(frozen=True)
class DataOptions:
    """All keys of ``data``; which of them a corpus accepts depends on its ``kind``.

    ``train`` and ``valid`` only name the prepared files, as MDLM does; what is read is decided by
    ``kind`` and its keys.
    """

    kind: str
    train: str
    valid: str
    tokenizer_name_or_path: str
    cache_dir: str = "~/.cache/lkf"
    wrap: bool = True
    streaming: bool = False
    # text kinds: how tokens become sequences
    layout: str = "mdlm"
    stride: int | None = None
    drop_digit_windows: bool = False
    # tokenizer_name_or_path=train
    tokenizer_type: str = "bpe"
    vocab_size: int | str = 4096
    tokenizer_characters: int | None = None
    # text and hub
    path: str | None = None
    valid_path: str | None = None
    valid_fraction: float = 0.1
    min_characters: int = 0
    encoding: str = "utf-8"
    encoding_errors: str = "refuse"
    document: str | None = None
    field: str = "text"
    whitespace: str = "keep"
    detokenizer: str | None = None
    dataset: str | None = None
    subset: str | None = None
    revision: str | None = None
    train_split: str = "train"
    valid_split: str = "validation"
    line_ends: str = "strip"
    # agreetext
    clauses: int = 4
    train_sequences: int = 50_000
    valid_sequences: int = 2_000
    train_seed: int = 0
    valid_seed: int = 1

    def of_kind(self) -> dict[str, Any]:
        """The kind's own keys and values: what the digest of prepared data covers."""
        own = set(_OWN[self.kind])
        return {key: value for key, value in asdict(self).items() if key in own}


def launch_directory() -> Path:
    """Where the user started the program, also after Hydra has changed directory."""
    from hydra.core.hydra_config import HydraConfig

    if HydraConfig.initialized():
        return Path(HydraConfig.get().runtime.cwd)
    return Path.cwd()


def absolute(path: str) -> Path:
    """Expands ``~`` and makes a path absolute relative to the launch directory."""
    return Path(os.path.normpath(launch_directory() / Path(path).expanduser()))


def read_options(config: DictConfig) -> tuple[DataOptions, int]:
    """Reads and checks ``config.data`` and ``config.model.length``.

    Args:
        config: The whole configuration.

    Returns:
        The options and the sequence length L.

    Raises:
        UserError: An option is unknown to the corpus kind, missing, or has an illegal value.
    """
    raw = OmegaConf.to_container(config.data, resolve=True)
    assert isinstance(raw, Mapping)
    data = {str(key): value for key, value in raw.items()}
    kind = data.get("kind")
    if kind not in _OWN:
        raise UserError(f"data.kind={kind} is unknown: take one of {', '.join(_OWN)}.")
    allowed = (*_ALWAYS, *_OWN[kind])
    for key in data:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean data.{near[0]}" if near else f"it has {', '.join(allowed)}"
            raise UserError(f"data.{key} is not an option of data.kind={kind}: {hint}.")
    for key in dict.fromkeys(("train", "valid", "tokenizer_name_or_path", *data)):
        missing = (None, "") if key in _ALWAYS else ()
        if data.get(key) in ("???", *missing):
            raise UserError(f"data.{key} must be set.")
    types = {field.name: str(field.type) for field in fields(DataOptions)}
    options = DataOptions(**{key: _typed(key, value, types[key]) for key, value in data.items()})
    length = config.model.length
    if not isinstance(length, int) or length < 3:
        raise UserError(f"model.length={length} must be a whole number of at least 3.")
    _check(options, length)
    return options, length


def _typed(key: str, value: Any, kind: str) -> Any:
    """Checks one value against the annotation of its field."""
    if value is None and "None" in kind:
        return None
    if key == "vocab_size" and value == AUTO:
        return value
    wanted = kind.split(" | ")[0]
    if wanted == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if wanted == "str" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    matches = {"bool": bool, "int": int, "str": str}.get(wanted)
    if matches is None or type(value) is not matches:
        names = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        other = " or auto" if key == "vocab_size" else ""
        raise UserError(f"data.{key}={value} must be {names.get(wanted, 'text')}{other}.")
    return value


def _check(options: DataOptions, length: int) -> None:
    """Rules between options."""
    kind = options.kind
    for key, legal in _CHOICES.items():
        value = getattr(options, key)
        if key in _OWN[kind] and value not in legal:
            shown = ", ".join("null" if item is None else str(item) for item in legal)
            raise UserError(f"data.{key}={value} is unknown: take one of {shown}.")
    for key, (least, most) in _RANGES.items():
        value = getattr(options, key)
        if isinstance(value, int) and not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            raise UserError(f"data.{key}={value} must be {bound}.")
    if not is_text_encoding(options.encoding):
        raise UserError(
            f"data.encoding={options.encoding} is no encoding of text that Python knows: take "
            "utf-8, latin-1, cp1252, utf-16 or another."
        )
    if options.train != options.valid:
        raise UserError(
            f"data.train={options.train} and data.valid={options.valid} name the files of one "
            "corpus and must be equal; choose the held-out part by the corpus's own options."
        )
    if Path(options.train).name != options.train:
        raise UserError(f"data.train={options.train} must be a plain name without folders.")
    if options.streaming:
        raise UserError("data.streaming=true is not supported: set data.streaming=false.")
    if not 0 < options.valid_fraction <= 0.5:
        raise UserError(f"data.valid_fraction={options.valid_fraction} must be in (0, 0.5].")
    if kind == "text" and options.path is None:
        raise UserError("data.path must name a text file, a .jsonl file, a folder or a glob.")
    if not options.wrap and (options.layout == "windows" or kind in ("agreetext", "text8")):
        what = "data.layout=windows" if options.layout == "windows" else f"data.kind={kind}"
        raise UserError(f"{what} fills every sequence to its end: set data.wrap=true.")
    if options.layout != "windows" and (options.drop_digit_windows or options.stride is not None):
        raise UserError("data.drop_digit_windows and data.stride need data.layout=windows.")
    if options.stride is not None and options.stride < 1:
        raise UserError(f"data.stride={options.stride} must be at least 1, or null for the length.")
    if kind == "agreetext":
        _check_agreetext(options, length)
    if kind == "text8" and options.tokenizer_name_or_path != "text8":
        raise UserError("data.kind=text8 needs data.tokenizer_name_or_path=text8.")
    if kind == "hub" and options.path is None and options.dataset is None:
        raise UserError("data.kind=hub needs data.dataset (a hub name) or data.path (a folder).")


def _check_agreetext(options: DataOptions, length: int) -> None:
    if length != 8 * options.clauses:
        raise UserError(
            f"model.length={length} must be 8 * data.clauses = {8 * options.clauses} for agreetext."
        )
    if options.train_seed == options.valid_seed:
        raise UserError("data.train_seed and data.valid_seed must differ.")
    if options.tokenizer_name_or_path != "agreetext":
        raise UserError("data.kind=agreetext needs data.tokenizer_name_or_path=agreetext.")
