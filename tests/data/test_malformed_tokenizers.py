"""Tokenizers that cannot be loaded or trained, and damaged caches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
from omegaconf import DictConfig

from lkf_plugin.data import hub as hub_module
from lkf_plugin.data import load_tokenizer, prepare
from lkf_plugin.errors import UserError
from tests.data.malformed import assert_refused, kept

Make = Callable[..., DictConfig]


SIZE = "must be a whole number from 6 to 1000000, or auto"
# the options, what the sentence holds
OPTIONS: list[tuple[dict[str, object], str]] = [
    ({"vocab_size": 0}, f"data.vocab_size=0 {SIZE}"),
    ({"vocab_size": -300}, f"data.vocab_size=-300 {SIZE}"),
    ({"vocab_size": 10**12}, f"data.vocab_size=1000000000000 {SIZE}"),
    ({"vocab_size": 30.5}, f"data.vocab_size=30.5 {SIZE}"),
    ({"vocab_size": "many"}, f"data.vocab_size=many {SIZE}"),
    ({"vocab_size": None}, f"data.vocab_size=null {SIZE}"),
    ({"vocab_size": True}, f"data.vocab_size=true {SIZE}"),
    ({"vocab_size": 20}, "data.vocab_size=20 cannot hold the alphabet: set at least 261"),
    ({"vocab_size": 10, "tokenizer_type": "wordpiece"}, "data.vocab_size=10 cannot hold the alp"),
    ({"tokenizer_type": "unigram"}, "data.tokenizer_type=unigram is unknown"),
    ({"tokenizer_name_or_path": "no-such-name"}, "is neither a folder nor one of bert"),
    ({"tokenizer_name_or_path": "no/such/folder"}, "is neither a folder nor one of bert"),
    ({"tokenizer_name_or_path": "https://x.org/t"}, "is neither a folder nor one of bert"),
    ({"tokenizer_name_or_path": ""}, "data.tokenizer_name_or_path= must be text that is not empty"),
    ({"tokenizer_name_or_path": None}, "data.tokenizer_name_or_path=null must be text"),
    ({"tokenizer_name_or_path": "x" * 300}, "is neither a folder nor one of bert"),
]


@pytest.mark.parametrize(("data", "message"), OPTIONS, ids=[str(data)[:40] for data, _ in OPTIONS])
def test_options(make_config: Make, tmp_path: Path, data: dict[str, object], message: str) -> None:
    assert_refused(lambda: prepare(make_config(**data)), message, tmp_path)


def test_a_known_name_without_a_hub(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "hub_reachable", lambda: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    config = make_config(tokenizer_name_or_path="bert-base-uncased")
    assert_refused(lambda: prepare(config), "cannot be had .*set data.tokenizer_name", tmp_path)


BERT = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
FAST = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}

# the files of the folder, what the sentence holds
FOLDERS: list[tuple[str, dict[str, str], str]] = [
    ("empty", {}, "holds no tokenizer"),
    ("readme", {"README.md": "a tokenizer"}, "holds no tokenizer"),
    ("vocab-without-merges", {"vocab.json": "{}"}, "holds no tokenizer"),
    ("merges-without-vocab", {"merges.txt": "#version: 0.2\n"}, "holds no tokenizer"),
    ("no-json", {"tokenizer.json": "not json"}, "cannot be loaded"),
    ("half-json", {"tokenizer.json": json.dumps(FAST)[:30]}, "cannot be loaded"),
    ("json-list", {"tokenizer.json": "[]"}, "cannot be loaded"),
    ("json-empty", {"tokenizer.json": ""}, "cannot be loaded"),
    ("json-no-model", {"tokenizer.json": "{}"}, "cannot be loaded"),
    ("foreign-model", {"tokenizer.json": '{"model": {"type": "Magic"}}'}, "cannot be loaded"),
    ("no-specials", {"tokenizer.json": json.dumps(FAST)}, "needs a bos_token or a cls_token"),
    ("bad-config", {"tokenizer_config.json": "{"}, "cannot be loaded"),
    ("config-alone", {"tokenizer_config.json": "{}"}, "cannot be loaded"),
    (
        "unknown-class",
        {"tokenizer_config.json": '{"tokenizer_class": "NoSuchTokenizer"}'},
        "cannot be loaded",
    ),
    ("vocab-no-json", {"vocab.json": "x", "merges.txt": "#version: 0.2\n"}, "cannot be loaded"),
    ("bert-no-mask", {"vocab.txt": BERT.replace("[MASK]\n", "")}, "mask|\\[MASK\\]"),
    ("bert-no-cls", {"vocab.txt": BERT.replace("[CLS]\n", "")}, "bos|\\[CLS\\]"),
    ("bert-empty", {"vocab.txt": ""}, "tokenizer"),
]


@pytest.mark.parametrize(
    ("files", "message"), [c[1:] for c in FOLDERS], ids=[c[0] for c in FOLDERS]
)
def test_folders(make_config: Make, tmp_path: Path, files: dict[str, str], message: str) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    config = make_config(tokenizer_name_or_path=str(folder))
    assert_refused(lambda: prepare(config), message, tmp_path)


def test_a_tokenizer_without_a_mask_gets_one_at_the_end(gpt2_folder: Path) -> None:
    assert load_tokenizer(str(gpt2_folder)).mask_token_id is None  # ids: test_prepare.py


# --- damaged caches ------------------------------------------------------------------------------


def files_named(root: Path, name: str) -> list[Path]:
    return sorted(path for path in root.rglob(name) if path.is_file())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", "{"),
        ("manifest.json", "[]"),
        ("manifest.json", "{}"),
        ("manifest.json", '{"splits": 3}'),
        ("manifest.json", ""),
        ("dataset_info.json", "{"),
        ("state.json", ""),
        ("*.arrow", ""),
        ("*.arrow", "no arrow"),
        ("tokenizer.json", "{"),
    ],
)
def test_a_damaged_cache_is_made_anew(
    make_config: Make, tmp_path: Path, name: str, content: str
) -> None:
    first = prepare(make_config())
    assert first.train is not None
    rows = first.train[:]["input_ids"].tolist()
    for path in files_named(tmp_path / "cache", name):
        path.write_text(content)
    again = prepare(make_config())
    assert again.train is not None and again.train[:]["input_ids"].tolist() == rows
    assert again.digest == first.digest and again.manifest == first.manifest


def test_a_whole_cache_needs_no_right_to_write(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(make_config())

    def denied(*args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", denied)
    monkeypatch.setattr(Path, "mkdir", denied)
    assert prepare(make_config()).digest == first.digest
    with pytest.raises(UserError, match="cannot be written .*Permission denied.*data.cache_dir"):
        prepare(make_config(20))


def test_a_split_that_fails_leaves_what_was_whole(make_config: Make, tmp_path: Path) -> None:
    whole = prepare(make_config(), splits=("valid",))
    shutil.rmtree(files_named(whole.folder, "*.arrow")[0].parent)
    assert prepare(make_config(), splits=("valid",)).manifest == whole.manifest
    assert {"manifest.json"} <= {Path(name).name for name in kept(tmp_path / "cache")}
