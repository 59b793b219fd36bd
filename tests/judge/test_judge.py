from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from lkf_plugin.errors import UserError
from lkf_plugin.judge.judge import Judge, decode_samples

WORDS = "the cat sat on a mat and the dog ran to the old red barn while rain fell".split()
TEXTS = [
    "the cat sat on a mat",
    "rain fell",
    "the old red barn and the dog ran to the old red barn while rain fell",
    "q",
    "a dog, the cat! 17 mats",
    "",
    "night",
]


@pytest.fixture(scope="module")
def judge(judge_folder: Path) -> Judge:
    return Judge(str(judge_folder), device="cpu", dtype="float32")


def by_hand(judge: Judge, ids: list[int]) -> float:
    """Nats of one text, unpadded, one prediction at a time."""
    total = 0.0
    for end in range(1, len(ids)):
        with torch.no_grad():
            logits_V = judge.model(torch.tensor([ids[:end]])).logits[0, -1].double()
        total -= float(torch.log_softmax(logits_V, 0)[ids[end]])
    return total


def test_equals_unpadded_prediction_one_by_one(judge: Judge) -> None:
    score = judge.score(TEXTS, max_length=64, batch_size=3, progress=False)
    ids = [judge.tokenizer(text)["input_ids"] for text in TEXTS]
    expected = np.array([by_hand(judge, one) for one in ids])
    np.testing.assert_allclose(score.sample_nll, expected, rtol=1e-5)
    assert score.sample_tokens.tolist() == [max(len(one) - 1, 0) for one in ids]
    assert score.nll == pytest.approx(expected.sum(), rel=1e-6)
    assert score.ppl == pytest.approx(math.exp(expected.sum() / score.tokens), rel=1e-6)
    assert score.metric == "gen_ppl[tiny-gpt2]" and score.dtype == "float32"


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_batch_size_and_order_change_rounding_only(judge: Judge, batch_size: int) -> None:
    reference = judge.score(TEXTS, max_length=64, batch_size=3, progress=False)
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = [TEXTS[index] for index in order]
    score = judge.score(shuffled, max_length=64, batch_size=batch_size, progress=False)
    assert score.tokens == reference.tokens
    np.testing.assert_allclose(score.sample_nll, reference.sample_nll[order], rtol=1e-5)


def test_uniform_judge_gives_the_vocabulary_size(
    save_judge: Callable[..., Path], tmp_path: Path
) -> None:
    judge = Judge(str(save_judge(tmp_path / "flat", zero=True)), device="cpu")
    score = judge.score(TEXTS, max_length=64, progress=False)
    assert score.ppl == pytest.approx(len(judge.tokenizer), rel=1e-5)
    assert score.se == pytest.approx(0.0, abs=1e-3)


def test_empty_and_one_token_samples_are_counted_not_scored(judge: Judge) -> None:
    assert len(judge.tokenizer("q")["input_ids"]) == 1
    score = judge.score(TEXTS, max_length=64, progress=False)
    kept = judge.score([one for one in TEXTS if one not in ("", "q")], 64, progress=False)
    assert score.empty >= 2 and score.samples == len(TEXTS)
    assert (score.nll, score.tokens) == (pytest.approx(kept.nll), kept.tokens)


def test_truncation_counts_judge_tokens(judge: Judge) -> None:
    text = TEXTS[2]
    ids = judge.tokenizer(text)["input_ids"]
    score = judge.score([text, "the cat"], max_length=5, progress=False)
    assert len(ids) > 5 and score.truncated == 1
    assert score.sample_tokens[0] == 4
    assert score.sample_nll[0] == pytest.approx(by_hand(judge, ids[:5]), rel=1e-5)


def test_bos_only_where_the_tokenizer_adds_one(
    judge: Judge, save_judge: Callable[..., Path], tmp_path: Path
) -> None:
    with_bos = Judge(str(save_judge(tmp_path / "bos", adds_bos=True)), device="cpu")
    plain = judge.token_ids(["the cat"])[0]
    assert plain[0] != judge.tokenizer.bos_token_id
    assert with_bos.token_ids(["the cat"])[0] == [with_bos.tokenizer.bos_token_id, *plain]
    # The BOS takes one of the places, and lets the first token of the text be predicted.
    score = with_bos.score(["the cat sat", "q"], max_length=3, progress=False)
    assert score.sample_tokens.tolist() == [2, 1]
    assert score.empty == 0


def test_perplexity_weights_by_token(judge: Judge) -> None:
    score = judge.score([TEXTS[1], TEXTS[2]], max_length=64, progress=False)
    per_sample = np.exp(score.sample_nll / score.sample_tokens)
    assert score.ppl == pytest.approx(math.exp(score.sample_nll.sum() / score.sample_tokens.sum()))
    assert abs(score.ppl - per_sample.mean()) > 1e-3 * score.ppl


def test_standard_error_is_seeded_and_shrinks_with_samples(judge: Judge) -> None:
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=6)) for _ in range(64)]
    few = judge.score(texts[:8], 64, progress=False, seed=5)
    again = judge.score(texts[:8], 64, progress=False, seed=5)
    other = judge.score(texts[:8], 64, progress=False, seed=6)
    many = judge.score(texts * 4, 64, batch_size=64, progress=False)
    assert few.se == again.se != other.se
    assert few.se is not None and many.se is not None and many.se < few.se / 2
    assert judge.score(texts[:1], 64, progress=False).se is None


def test_standard_error_matches_the_delta_method(judge: Judge) -> None:
    generator = random.Random(2)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(3, 9))) for _ in range(200)]
    score = judge.score(texts, 64, batch_size=50, progress=False)
    residual = score.sample_nll - math.log(score.ppl) * score.sample_tokens
    expected = score.ppl * residual.std(ddof=1) * math.sqrt(200) / score.tokens
    assert score.se == pytest.approx(expected, rel=0.15)


def test_decoding_strips_special_tokens_and_keeps_what_follows(judge: Judge) -> None:
    ids = judge.tokenizer("the cat")["input_ids"]
    row = [0, *ids, 1, *judge.tokenizer(" sat")["input_ids"], 1]
    assert decode_samples(judge.tokenizer, torch.tensor([row])) == ["the cat sat"]


def test_says_what_to_do_about_mistakes(judge: Judge, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at most 64"):
        judge.score(["the cat"], max_length=65)
    with pytest.raises(UserError, match="nothing to score"):
        judge.score(["", "q"], max_length=8)
    with pytest.raises(UserError, match="batch_size"):
        judge.score(["the cat"], max_length=8, batch_size=0)
    with pytest.raises(UserError, match="no judge folder"):
        Judge(str(tmp_path / "absent"))
    with pytest.raises(UserError, match="holds no causal language model"):
        Judge(str(tmp_path))
    with pytest.raises(UserError, match="float32, bfloat16, float16"):
        Judge(str(tmp_path), dtype="int8")


def test_unreachable_hub_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("We couldn't connect\nand more lines")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(UserError, match="local model folder") as caught:
        Judge("gpt2-large", device="cpu")
    assert "\n" not in str(caught.value) and "smollm2" in str(caught.value)
