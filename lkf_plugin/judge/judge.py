"""Generative perplexity: how likely a separate causal language model finds sampled texts.

The number depends on rules that papers rarely state. Ours, each held by a test:

* The judge gets text. ``decode_samples`` turns model tokens into text with every special token of
  the model stripped (mask, padding, [CLS], end of text); nothing is cut at the first end-of-text
  token, what follows it counts.
* The text is tokenized again by the judge and truncated to ``max_length`` judge tokens, a leading
  BOS included. A BOS is put in front only if the judge's tokenizer adds one by itself (GPT-2's and
  SmolLM2's do not); no EOS is appended.
* The first token is given, not predicted. A sample of fewer than two tokens predicts nothing: it
  adds nothing to the sums and is counted in ``JudgeScore.empty``.
* Perplexity is exp(total nats / total predicted tokens): weighted by token, not by sample.
* Every sample is scored; there is no remainder batch to drop. Padding is on the right, so that
  positions start at 0 for every sample, and its predictions are left out. ``batch_size`` and the
  order of the samples change rounding only.

Shapes: S samples, B batch, T judge tokens, V the judge's vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from lkf_plugin.errors import UserError
from lkf_plugin.judge import smollm2
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.estimate import Estimate, bootstrap_ratio

BOOTSTRAP_REPLICATES = 1000


@dataclass(frozen=True)
class JudgeScore:
    """What a judge says of a set of samples.

    Attributes:
        metric: name with the judge in it, such as ``gen_ppl[gpt2-large]``.
        nll: total negative log-likelihood of the predicted tokens, nats, summed in float64.
        tokens: number of predicted tokens.
        ppl: exp(nll / tokens).
        se: standard error of ``ppl``: its deviation over 1000 seeded bootstrap draws of samples;
            ``None`` for a single sample.
        samples: texts given, the empty ones included.
        empty: texts of fewer than two judge tokens.
        truncated: texts that were longer than ``max_length`` tokens.
        max_length: judge tokens that a text may have.
        dtype: precision of the judge's weights.
        sample_nll: shape (S,), float64, nats.
        sample_tokens: shape (S,), int64.
    """

    metric: str
    nll: float
    tokens: int
    ppl: float
    se: float | None
    samples: int
    empty: int
    truncated: int
    max_length: int
    dtype: str
    sample_nll: np.ndarray
    sample_tokens: np.ndarray

    def estimate(self) -> Estimate:
        """The perplexity as a record keeps it."""
        return Estimate(self.ppl, self.se, self.samples)


class Judge:
    """A causal language model, loaded once, that scores texts.

    Args:
        name_or_path: a Hugging Face model name, a local model folder, or ``smollm2`` for the
            offline judge (see ``smollm2.py``).
        device: where it runs; a GPU if there is one, else the CPU.
        dtype: precision of the weights, as a torch dtype or its name. By default float32, except
            on a CPU with bfloat16 instructions: there bfloat16 is about 2.7 times faster and
            moves the perplexity by less than 0.1 %; on a CPU without them it is about 6 times
            slower.
        revision: commit of a hub model; pin it where numbers are to be compared.
        cache_dir: folder for the offline judge's fast copy, ``~/.cache/lkf/judge`` by default.

    Attributes:
        label: short name of the judge, part of the metric's name.
        revision: commit that a hub model was loaded from, ``None`` for a local folder.

    Raises:
        UserError: if the judge is not installed, not found or not reachable.
    """

    def __init__(
        self,
        name_or_path: str = "gpt2-large",
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        self.name_or_path = str(name_or_path)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.dtype = _resolve_dtype(dtype, self.device)
        source = self.name_or_path
        if source == smollm2.ALIAS:
            source = str(smollm2.fast_folder(cache_dir))
            self.label = smollm2.LABEL
        else:
            self.label = Path(source).name.lower()
        self.tokenizer, self.model = _load(source, self.dtype, revision)
        self.model.to(self.device).eval().requires_grad_(False)
        self.revision: str | None = getattr(self.model.config, "_commit_hash", None)
        self._prefix = _own_bos(self.tokenizer)

    @property
    def metric(self) -> str:
        """``gen_ppl[<label>]``; numbers of different judges never compare."""
        return f"gen_ppl[{self.label}]"

    def token_ids(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """The texts in the judge's own tokens, truncated as for scoring.

        Args:
            texts: S texts.
            max_length: most tokens per text, BOS included; ``None`` truncates nothing.
        """
        if not texts:
            return []
        plain = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [(self._prefix + list(ids))[:max_length] for ids in plain]

    def score(
        self,
        texts: Sequence[str],
        max_length: int,
        batch_size: int = 8,
        seed: int = 0,
        progress: bool = True,
        processes: Processes = ALONE,
    ) -> JudgeScore:
        """Scores texts by the rules at the top of this module.

        Args:
            texts: S texts, already without the model's special tokens.
            max_length: judge tokens that a text is truncated to.
            batch_size: texts a forward pass.
            seed: of the bootstrap that gives the standard error.
            progress: show a progress bar (only on a terminal).
            processes: that share the batches; each has its own copy of the judge.

        Raises:
            UserError: if no text has two tokens, or ``max_length`` exceeds the judge's context.
        """
        context = getattr(self.model.config, "max_position_embeddings", None)
        if max_length < 2 or (context is not None and max_length > context):
            limit = f" and at most {context}" if context is not None else ""
            raise UserError(
                f"the judge {self.label} takes a max_length of at least 2{limit} tokens, "
                f"not {max_length}: lower it"
            )
        if batch_size < 1:
            raise UserError(f"the judge's batch_size must be at least 1, not {batch_size}")
        whole = self.token_ids(texts)
        ids = [one[:max_length] for one in whole]
        nll_S = np.zeros(len(ids), dtype=np.float64)
        count_S = np.array([max(len(one) - 1, 0) for one in ids], dtype=np.int64)
        if not count_S.any():
            raise UserError(
                f"none of the {len(ids)} samples has two judge tokens: there is nothing to score"
            )
        # Neighbours of like length share a batch, which saves most of the padding.
        order = sorted(np.flatnonzero(count_S).tolist(), key=lambda index: -len(ids[index]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

        def nll_of(chosen: list[int]) -> np.ndarray:
            return self._batch_nll([ids[index] for index in chosen])

        title = self.label if progress else None
        for chosen, nll_B in zip(batches, processes.dealt(batches, nll_of, title), strict=True):
            nll_S[chosen] = nll_B
        nll, tokens = float(nll_S.sum()), int(count_S.sum())
        draws = np.exp(bootstrap_ratio(nll_S, count_S, BOOTSTRAP_REPLICATES, seed))
        return JudgeScore(
            metric=self.metric,
            nll=nll,
            tokens=tokens,
            ppl=math.exp(nll / tokens),
            se=float(draws.std(ddof=1)) if len(ids) > 1 else None,
            samples=len(ids),
            empty=int((count_S == 0).sum()),
            truncated=sum(len(one) > max_length for one in whole),
            max_length=max_length,
            dtype=str(self.dtype).removeprefix("torch."),
            sample_nll=nll_S,
            sample_tokens=count_S,
        )

    @torch.inference_mode()
    def _batch_nll(self, ids: list[list[int]]) -> np.ndarray:
        """Nats of each text, shape (B,), float64; texts of two tokens or more."""
        longest = max(len(one) for one in ids)
        ids_BT = torch.zeros(len(ids), longest, dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for row, one in enumerate(ids):
            ids_BT[row, : len(one)] = torch.tensor(one)
            mask_BT[row, : len(one)] = 1
        ids_BT, mask_BT = ids_BT.to(self.device), mask_BT.to(self.device)
        logits_BTV = self.model(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False).logits
        counts_BT = mask_BT[:, 1:].bool()
        nll_N = F.cross_entropy(
            logits_BTV[:, :-1][counts_BT].float(), ids_BT[:, 1:][counts_BT], reduction="none"
        )
        nll_BT = torch.zeros(counts_BT.shape, dtype=torch.float64, device=self.device)
        nll_BT[counts_BT] = nll_N.double()
        return nll_BT.sum(1).cpu().numpy()


def decode_samples(tokenizer: Any, ids_BL: torch.Tensor) -> list[str]:
    """Sampled model tokens as text, all special tokens of the model stripped.

    Args:
        tokenizer: the model's Hugging Face tokenizer.
        ids_BL: shape (B, L), integer.
    """
    return tokenizer.batch_decode(ids_BL.tolist(), skip_special_tokens=True)


def _load(source: str, dtype: torch.dtype, revision: str | None) -> tuple[Any, Any]:
    """Tokenizer and model of a hub name or a local folder."""
    local = Path(source).expanduser()
    if local.is_dir():
        source = str(local)
    elif source.startswith(("/", ".", "~")):
        raise UserError(f"there is no judge folder {source}: give a model folder or a hub name")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source, revision=revision, trust_remote_code=False
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, revision=revision, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if local.is_dir():
            raise UserError(
                f"the folder {source} holds no causal language model that transformers can load "
                f"({first})"
            ) from error
        raise UserError(
            f"cannot get the judge {source} from the Hugging Face hub ({first}): give the path of "
            "a local model folder instead, or `smollm2` for the offline judge"
        ) from error
    return tokenizer, model


def _own_bos(tokenizer: Any) -> list[int]:
    """The BOS token in a list if the tokenizer puts it in front by itself, else an empty list."""
    bos = tokenizer.bos_token_id
    with_special = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    adds = bos is not None and with_special[:1] == [bos] and with_special != plain
    return [bos] if adds else []


def _resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype asked for, or the default that ``Judge`` states."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is None:
        fast = device.type == "cpu" and _cpu_has_bfloat16()
        return torch.bfloat16 if fast else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise UserError(f"the judge's dtype must be one of {', '.join(known)}, not {dtype}")
    return known[dtype]


def _cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself (AVX512-BF16 or AMX)."""
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)
