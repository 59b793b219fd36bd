"""``hub``: text sets of the Hugging Face hub, or a local folder with the same files.

Files are fetched at a pinned commit and read row by row; a row is a document, also an empty one,
as in MDLM (WikiText's blank lines each give an EOS).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from lkf_plugin.data.corpus import CORPORA, Documents, OptionalName, OptionalPath, TextSettings
from lkf_plugin.data.detokenize import DETOKENIZERS, get_detokenizer
from lkf_plugin.data.hashing import files_digest
from lkf_plugin.data.jsonl import jsonl_rows
from lkf_plugin.data.options import absolute
from lkf_plugin.data.reading import text_lines
from lkf_plugin.errors import UserError
from lkf_plugin.settings.fields import Choice, Name

_SUFFIXES = (".parquet", ".jsonl", ".json", ".txt", ".tokens", ".raw")
_ALIASES = {"validation": ("validation", "valid", "dev", "heldout")}


def is_commit(revision: str) -> bool:
    """Whether a revision names one commit for ever."""
    return re.fullmatch("[0-9a-f]{40}", revision) is not None


def hub_reachable(timeout: float = 5.0) -> bool:
    """Whether the hub's host answers; without this its client retries for a minute.

    With a proxy in the environment only the client itself can tell, so this says yes.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY")):
        return True
    url = urlsplit(constants.ENDPOINT)
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        socket.create_connection((url.hostname or "", port), timeout=timeout).close()
    except OSError:
        return False
    return True


def snapshot(repo: str, repo_type: str, revision: str, patterns: list[str], remedy: str) -> Path:
    """Folder with the files of a hub repository that match ``patterns``, from cache or network.

    Args:
        repo: ``owner/name``.
        repo_type: ``dataset`` or ``model``.
        revision: A commit or a branch.
        patterns: Glob patterns of the files.
        remedy: The end of the error message: what to do where there is no hub.

    Raises:
        UserError: The files are neither cached nor to be had.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            repo,
            repo_type=repo_type,
            revision=revision,
            allow_patterns=patterns,
            local_files_only=not hub_reachable(),
        )
    except Exception as error:  # the client raises many kinds: network, rights, no such revision
        raise UserError(
            f"{repo} at {revision} cannot be had from the Hugging Face hub "
            f"({type(error).__name__}): {remedy}"
        ) from error
    return Path(folder)


class HubSettings(TextSettings):
    """Which set or folder, and what is read of it."""

    path: OptionalPath = None
    dataset: OptionalName = None
    subset: OptionalName = None
    revision: OptionalName = None
    field: Name = "text"
    train_split: Name = "train"
    valid_split: Annotated[str, Choice("validation", "test")] = "validation"
    line_ends: Annotated[str, Choice("keep", "strip")] = "strip"
    detokenizer: Annotated[str | None, Choice(*DETOKENIZERS)] = None

    elsewhere: ClassVar[tuple[str, ...]] = (*TextSettings.elsewhere, "path", "dataset", "revision")

    def check(self, length: int) -> None:
        """There must be a set or a folder."""
        super().check(length)
        if self.path is None and self.dataset is None:
            raise UserError(
                "data.kind=hub needs data.dataset (a hub name) or data.path (a folder)."
            )


@CORPORA.add("hub")
class HubCorpus(Documents):
    """Documents of a hub data set, or of ``data.path`` with such files.

    The files of a split are those in whose path, below the folder or its ``subset``, the split's
    name is a word: ``train-00000-of-00002.parquet``, ``plain_text/train/0000.parquet``,
    ``wiki.valid.tokens``.
    """

    Settings = HubSettings

    def __init__(self, settings: HubSettings) -> None:
        self.settings = settings
        self.local = absolute(settings.path) if settings.path else None
        if self.local and not self.local.is_dir():
            raise UserError(
                f"data.path={settings.path} must be a folder (looked for {self.local})."
            )
        if not self.local and not settings.revision:
            raise UserError("data.revision must pin a commit of the data set (40 hex digits).")

    def _split_name(self, split: str) -> str:
        return self.settings.train_split if split == "train" else self.settings.valid_split

    def _fetch(self, patterns: list[str]) -> Path:
        assert self.settings.dataset is not None and self.settings.revision is not None
        return snapshot(
            self.settings.dataset,
            "dataset",
            self.settings.revision,
            patterns,
            "set data.path to a folder with its parquet files.",
        )

    def fingerprint(self) -> dict[str, Any]:
        """The pinned commit, or the contents of the local files of each split."""
        if self.local:
            files = {name: self._local_files(self.local, name) for name in ("train", "valid")}
            return {name: files_digest(paths) if paths else None for name, paths in files.items()}
        revision = self.settings.revision
        assert revision is not None
        if not is_commit(revision):
            # A branch moves: pin the commit that it means now. Snapshot folders are named by it.
            revision = self._fetch(["README.md"]).name
        return {"dataset": self.settings.dataset, "commit": revision}

    def _local_files(self, root: Path, split: str) -> list[Path]:
        subset = self.settings.subset
        base = root / subset if subset and (root / subset).is_dir() else root
        name = self._split_name(split)
        wanted = set(_ALIASES.get(name, (name,)))
        paths = []
        for path in sorted(base.rglob("*")):
            words = re.split("[^a-z]+", str(path.relative_to(base)).lower())
            if path.suffix in _SUFFIXES and path.is_file() and wanted & set(words):
                paths.append(path)
        return paths

    def documents(self, split: str) -> Iterator[str]:
        root = self.local
        if root is None:
            base = f"{self.settings.subset}/" if self.settings.subset else ""
            name = self._split_name(split)
            root = self._fetch([f"{base}{name}*", f"{base}{name}/*", f"{base}data/{name}*"])
        files = self._local_files(root, split)
        if not files:
            raise UserError(
                f"{self.settings.path or self.settings.dataset} has no file of the split "
                f"{self._split_name(split)} (parquet, jsonl, json or txt)."
            )
        detokenize = get_detokenizer(self.settings.detokenizer)
        for path in files:
            yield from map(detokenize, self._rows(path))

    def _rows(self, path: Path) -> Iterator[str]:
        if path.suffix == ".parquet":
            return parquet_rows(path, self.settings.field)
        if path.suffix in (".json", ".jsonl"):
            return jsonl_rows(path, self.settings.field)
        return line_rows(path, keep_ends=self.settings.line_ends == "keep")


def line_rows(path: Path, keep_ends: bool) -> Iterator[str]:
    """Lines as rows; a blank one is empty.

    With ``keep_ends`` the others keep their line break, as the rows of the hub's WikiText do.
    """
    for line in text_lines(path):
        blank = not line.strip()
        yield "" if blank else line if keep_ends else line.rstrip("\n")


def parquet_rows(path: Path, field: str) -> Iterator[str]:
    """One text column of a parquet file, a few thousand rows in memory at a time.

    Raises:
        UserError: There is no such column, it holds no text, or the file is damaged.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    try:
        with pa.parquet.ParquetFile(path) as opened:
            schema = opened.schema_arrow
            if field not in schema.names:
                raise UserError(
                    f"{path} has no column {field} (data.field): {', '.join(schema.names)}."
                )
            kind = schema.field(field).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise UserError(
                    f"{path} has no text in column {field} (data.field): it holds {kind}."
                )
            for batch in opened.iter_batches(batch_size=4096, columns=[field]):
                for text in batch.column(0).to_pylist():
                    yield text or ""
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has a row in column {field} that is not UTF-8 text.") from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(f"{path} cannot be read as parquet ({reason}).") from error
