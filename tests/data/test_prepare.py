from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.data import PreparedData, load_tokenizer, prepare, store
from lkf_plugin.data import prepare as package_prepare
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]


def ids_of(prepared: PreparedData, split: str) -> torch.Tensor:
    rows = getattr(prepared, split)
    return rows[:]["input_ids"]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the splits that were really written."""
    done: list[str] = []
    original = store.write_split

    def spy(target: Path, *args: object) -> None:
        done.append(target.name)
        original(target, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write_split", spy)
    return done


def test_wrapped_gpt2(make_config: Make, gpt2_folder: Path, corpus_file: Path) -> None:
    prepared = prepare(make_config(16, tokenizer_name_or_path=str(gpt2_folder)))
    tokenizer = load_tokenizer(str(gpt2_folder))
    documents = corpus_file.read_text().strip().split("\n\n")
    for split, chosen in (
        ("train", [d for i, d in enumerate(documents) if i % 10 != 9]),
        ("valid", documents[9::10]),
    ):
        stream = []
        for document in chosen:
            stream += [*tokenizer.encode(document, add_special_tokens=False), prepared.eos_index]
        rows = ids_of(prepared, split)
        assert len(rows) == len(stream) // 14
        assert rows[:, 1:-1].reshape(-1).tolist() == stream[: len(rows) * 14]
        assert set(rows[:, 0].tolist()) == {prepared.bos_index}
        assert set(rows[:, -1].tolist()) == {prepared.eos_index}
        counts = prepared.manifest["splits"][split]
        assert counts["documents"] == len(chosen) and counts["tokens"] == rows.numel()
    assert prepared.mask_index == prepared.vocab_size - 1 == tokenizer.vocab_size


def test_wrapped_bert_ends_with_sep(make_config: Make, bert_folder: Path) -> None:
    prepared = prepare(make_config(16, tokenizer_name_or_path=str(bert_folder)))
    rows = ids_of(prepared, "train")
    assert set(rows[:, 0].tolist()) == {2} and set(rows[:, -1].tolist()) == {3}
    assert 2 not in rows[:, 1:].unique().tolist()
    assert (prepared.mask_index, prepared.pad_index) == (4, 0)


def test_unwrapped_bert_is_the_tokenizers_own(
    make_config: Make, bert_folder: Path, corpus_file: Path
) -> None:
    config = make_config(12, tokenizer_name_or_path=str(bert_folder), wrap=False)
    prepared = prepare(config)
    held_out = corpus_file.read_text().strip().split("\n\n")[9::10] + []
    expected = load_tokenizer(str(bert_folder))(
        held_out, padding="max_length", truncation=True, max_length=12, return_tensors="pt"
    )
    assert torch.equal(ids_of(prepared, "valid"), expected["input_ids"])
    assert prepared.valid is not None
    assert torch.equal(prepared.valid[:]["attention_mask"], expected["attention_mask"])


def test_unwrapped_gpt2_never_pads_with_the_mask(make_config: Make, gpt2_folder: Path) -> None:
    prepared = prepare(make_config(48, tokenizer_name_or_path=str(gpt2_folder), wrap=False))
    assert prepared.train is not None
    rows = prepared.train[:]
    padded = rows["input_ids"][rows["attention_mask"] == 0]
    assert len(padded) and set(padded.tolist()) == {prepared.eos_index}
    assert prepared.mask_index not in rows["input_ids"]


def test_second_call_writes_nothing(make_config: Make, writes: list[str]) -> None:
    first = prepare(make_config())
    assert writes == ["tiny_train_bs16_wrapped.dat", "tiny_validation_bs16_wrapped.dat"]
    second = prepare(make_config())
    assert len(writes) == 2 and second.digest == first.digest
    assert torch.equal(ids_of(first, "train"), ids_of(second, "train"))
    manifest = json.loads((first.folder / "manifest.json").read_text())
    assert manifest == first.manifest
    assert manifest["covers"]["length"] == 16 and manifest["digest"] == first.digest
    assert manifest["splits"]["train"]["sequences"] == len(ids_of(first, "train"))


def test_evaluation_needs_no_train_split(make_config: Make, writes: list[str]) -> None:
    only = prepare(make_config(), splits=("valid",))
    assert only.train is None and writes == ["tiny_validation_bs16_wrapped.dat"]
    full = prepare(make_config())
    assert full.folder == only.folder and writes[1:] == ["tiny_train_bs16_wrapped.dat"]


def test_digest_covers_what_matters(
    make_config: Make, tmp_path: Path, corpus_file: Path, bert_folder: Path, gpt2_folder: Path
) -> None:
    moved = tmp_path / "elsewhere.txt"
    shutil.copy(corpus_file, moved)
    base = prepare(make_config()).digest
    assert prepare(make_config(path=str(moved))).digest == base
    changed = tmp_path / "changed.txt"
    changed.write_text(corpus_file.read_text().replace("fox", "ox"))
    others = [
        make_config(17),
        make_config(path=str(changed)),
        make_config(valid_path=str(moved)),
        make_config(valid_fraction=0.2),
        make_config(document="line"),
        make_config(whitespace="collapse"),
        make_config(detokenizer="lm1b"),
        make_config(wrap=False),
        make_config(layout="windows"),
        make_config(layout="windows", stride=3),
        make_config(layout="windows", drop_digit_windows=True),
        make_config(vocab_size=299),
        make_config(tokenizer_type="wordpiece", vocab_size=60),
        make_config(tokenizer_name_or_path=str(bert_folder)),
        make_config(tokenizer_name_or_path=str(gpt2_folder)),
        make_config(train="other", valid="other"),
    ]
    digests = [base, *(prepare(config, splits=("valid",)).digest for config in others)]
    assert len(set(digests)) == len(digests)


def test_tokenizer_sees_the_train_split_only(make_config: Make, tmp_path: Path) -> None:
    train, held = tmp_path / "train.txt", tmp_path / "held.txt"
    train.write_text("\n\n".join(["banana bandana"] * 30))
    held.write_text("\n\n".join(["xylophone xylophone xylophone xylophone"] * 30))
    prepared = prepare(make_config(path=str(train), valid_path=str(held), vocab_size=270))
    tokens = prepared.tokenizer.get_vocab()
    assert any(token.endswith("ana") for token in tokens)
    assert not any("xy" in token for token in tokens)


def test_saved_tokenizer_gives_the_same_ids(make_config: Make) -> None:
    prepared = prepare(make_config())
    again = load_tokenizer(prepared.tokenizer_path)
    text = "the quick fox [MASK]"
    assert again.encode(text) == prepared.tokenizer.encode(text)
    assert prepare(make_config(tokenizer_name_or_path=prepared.tokenizer_path)).digest == (
        prepared.digest
    )


def test_windows_without_digits(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "digits.txt"
    text = [
        f"the fox {'12' if i % 3 == 0 else 'runs'} near a small dog {'$' * (i + 1)}"
        for i in range(60)
    ]
    path.write_text("\n\n".join(text))
    config = make_config(6, path=str(path), layout="windows", drop_digit_windows=True)
    prepared = prepare(config)
    decoded = prepared.tokenizer.batch_decode(ids_of(prepared, "train"))
    assert decoded and not any(c in text for text in decoded for c in "0123456789$")
    assert all(text.strip() in "the fox runs near a small dog" for text in decoded)


def test_killed_before_the_manifest(make_config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def killed(*args: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(store, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(make_config())
    prepared = prepare(make_config())
    assert len(ids_of(prepared, "train")) == prepared.manifest["splits"]["train"]["sequences"]


def test_two_at_once_write_once(make_config: Make, writes: list[str]) -> None:
    results: list[PreparedData] = []

    def work() -> None:
        results.append(package_prepare(make_config()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(writes) == 2
    assert torch.equal(ids_of(results[0], "valid"), ids_of(results[1], "valid"))


def test_text8(make_config: Make, tmp_path: Path) -> None:
    raw = tmp_path / "cache" / "text8" / "raw_data"
    raw.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (raw / f"text8.{split}.txt").write_text("ab" * 40)
    names = {"train": "text8", "valid": "text8", "tokenizer_name_or_path": "text8"}
    prepared = prepare(make_config(10, kind="text8", valid_split="test", **names))
    assert prepared.tokenizer_path == "text8"
    assert (prepared.folder / "text8_test_bs10_wrapped.dat").is_dir()
    assert not (prepared.folder / "tokenizer").exists()
    # Ten characters and an EOS, over and over, eight of them a row.
    assert ids_of(prepared, "train")[1].tolist() == [2, 8, 9, 3, *[8, 9] * 2, 8, 3]


@pytest.mark.parametrize(
    ("length", "data", "message"),
    [
        (5000, {}, "train part .* gives not one full sequence of model.length=5000"),
        (100, {"layout": "windows"}, "no window of model.length=100"),
    ],
)
def test_corpus_too_short(
    make_config: Make, length: int, data: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepare(make_config(length, **data))


def test_tokens_added_after_training(make_config: Make, bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(bert_folder))
    tokenizer.add_tokens(["quick"])
    tokenizer.add_tokens(["xquick"])
    tokenizer.save_pretrained(tmp_path / "grown")
    path = tmp_path / "x.txt"
    path.write_text("\n\n".join(["the xquick fox"] * 20))
    with pytest.raises(UserError, match="must be merged"):
        prepare(make_config(5, path=str(path), tokenizer_name_or_path=str(tmp_path / "grown")))
