"""Any bytes are prepared or refused in one sentence; lossless tokenizers give the text back."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.data import prepare
from lkf_plugin.data.options import read_options
from lkf_plugin.data.text import TextCorpus
from lkf_plugin.data.tokenizer import complete, make_encoder
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.errors import UserError
from tests.data.malformed import kept

SLOW = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
FAST = settings(max_examples=80, deadline=None, derandomize=True)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
ROWS = st.lists(JSON | st.fixed_dictionaries({"text": st.text(max_size=80) | JSON}), max_size=12)
BYTES = st.binary(max_size=300) | TEXTS.map(str.encode) | TEXTS.map(lambda t: t.encode("utf-16"))
JSONL = BYTES | ROWS.map(lambda rows: "\n".join(map(json.dumps, rows)).encode())
CONTENTS = st.tuples(st.just(".txt"), BYTES) | st.tuples(st.just(".jsonl"), JSONL)
OPTIONS = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(["utf-8", "latin-1", "utf-16", "cp1252", "shift_jis"]),
        "encoding_errors": st.sampled_from(["refuse", "replace", "skip_file"]),
        "whitespace": st.sampled_from(["keep", "collapse"]),
        "document": st.sampled_from([None, "line", "file", "paragraph"]),
        "valid_fraction": st.sampled_from([0.1, 0.5]),
    }
)


def config_for(folder: Path, path: Path, **data: object) -> DictConfig:
    base = {
        **{"kind": "text", "train": "t", "valid": "t", "path": str(path), "vocab_size": 300},
        **{"cache_dir": str(folder / "cache"), "tokenizer_name_or_path": "train"},
    }
    return OmegaConf.create({"data": {**base, **data}, "model": {"length": 4}})


@given(content=CONTENTS, options=OPTIONS, packed=st.booleans())
@FAST
def test_any_bytes_are_read_or_refused(
    content: tuple[str, bytes], options: dict[str, object], packed: bool
) -> None:
    suffix, data = content
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"file{suffix}{'.gz' if packed else ''}")
        path.write_bytes(gzip.compress(data) if packed else data)
        try:
            corpus = TextCorpus(read_options(config_for(Path(name), path, **options))[0])
            sides = [list(corpus.documents(split)) for split in ("train", "valid")]
        except UserError as error:
            assert "\n" not in str(error) and str(error).endswith(".")
            return
        for text in (*sides[0], *sides[1]):
            text.encode("utf-8")  # what a tokenizer needs
        if corpus.different > 1:
            words = [{" ".join(text.split()) for text in side} for side in sides]
            assert not words[0] & words[1] and words[1]


@given(content=CONTENTS, kind=st.sampled_from(["bpe", "wordpiece"]))
@SLOW
def test_any_bytes_prepare_or_leave_nothing(content: tuple[str, bytes], kind: str) -> None:
    suffix, data = content
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"file{suffix}")
        path.write_bytes(data)
        config = config_for(Path(name), path, tokenizer_type=kind, encoding_errors="replace")
        try:
            prepared = prepare(config)
        except UserError as error:
            assert "\n" not in str(error)
            assert kept(Path(name, "cache")) == set()
            return
        assert prepared.train is not None and prepared.valid is not None
        assert len(prepared.train) and len(prepared.valid)
        assert int(prepared.train[:]["input_ids"].max()) < prepared.vocab_size


@pytest.fixture(scope="module", params=[False, True], ids=["words", "runs"])
def lossless(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Text through the byte-level tokenizer of a text with and without runs, and back."""
    text = ["the fox sees the small dog", "ACGT" * (400 if request.param else 20), "caf\u00e9"]
    tokenizer = complete(train_tokenizer(lambda: text, "bpe", 300), "t")
    encode = make_encoder(tokenizer, with_starts=False)
    return lambda text: tokenizer.decode(encode([text])[0].ids.tolist())


@given(text=TEXTS | st.text("ACGT \n", max_size=30).map(lambda text: text * 150))
@FAST
def test_byte_pairs_give_the_text_back(lossless: Callable[[str], str], text: str) -> None:
    assert lossless(text) == text


@pytest.mark.parametrize("text", ["[MASK] and [PAD]", "\0\x01", "x" * 5_001, " " * 3_333 + "\n"])
def test_what_looks_special_is_text(lossless: Callable[[str], str], text: str) -> None:
    assert lossless(text) == text
