"""How much memory a training step takes on a CPU, and the batch that keeps it under 2 GB.

An estimate from the shapes alone: weights, and what the backward pass needs per sequence. The
global batch is left as it is: what does not fit at once is accumulated. On a GPU nothing is
estimated, and a device takes its whole share at once.

Shape legend: B sequences, M components, L positions, D width, C conditioning, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.data.corpus import CORPORA, TRAIN
from lkf_plugin.data.options import settings_of
from lkf_plugin.data.tokenizer import token_ids
from lkf_plugin.errors import UserError
from lkf_plugin.methods.method import is_latent_kernel, method_of

BUDGET = 2e9  # bytes of a training process on a CPU
FLOOR = 4e8  # for the batch, where the weights alone come near the budget
PROGRAM = 5.5e8  # Python, torch, Lightning, tokenizers and the text's arrays
FLOAT = 4  # bytes
STATES = 5  # weights, gradients, Adam's two moments, average
# Floats per position and unit of width that one block keeps for the backward pass: the shared
# blocks, the latent ones (whose dropout masks are bytes), and what a pass without gradients needs.
KEPT, KEPT_LATENT, PASSING = 44, 33, 14
KEPT_BEHIND = 20  # of a component's parts behind attention
CHECKPOINTED = 2  # instead of KEPT, where a block is computed again
GATHERED = 9  # floats per position, component and unit of width between blocks and head
LOGITS = 5.3  # copies of [.., V] where all logits are held: logits, their log-softmax, gradients
LOGITS_PASSING = 3  # the same in a pass without gradients
OF_NAMES = {"bert-base-uncased": 30_522, "text8": 35, "characters": 32}
WRONG = (ArithmeticError, TypeError, ValueError, AttributeError, OmegaConfBaseException)
LARGE_VOCABULARY = 50_258  # GPT-2's, for a tokenizer that is not read yet


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a process on a CPU.

    Attributes:
        fixed: weights, their gradients, moments and average, and the program.
        per_sequence: of a training step.
        per_sequence_eval: of a validation or sampling step.
    """

    fixed: float
    per_sequence: float
    per_sequence_eval: float

    def of_batch(self, batch_size: int) -> float:
        """Peak of a training step with ``batch_size`` sequences at once."""
        return self.fixed + batch_size * self.per_sequence


def estimate(config: DictConfig) -> StepMemory:
    """The memory of a step of this configuration.

    Raises:
        ArithmeticError, TypeError, ValueError, AttributeError, OmegaConfBaseException, UserError:
            the configuration does not make sense; validation says where.
    """
    model, loss, method = config.model, config.loss, method_of(config)
    D, L, C, depth = model.hidden_size, model.length, model.cond_dim, model.n_blocks
    V = vocabulary_size(config.data)
    is_lkf = is_latent_kernel(config)
    M = model.num_components * model.get("block_components", 1) if is_lkf else 1
    latent = model.latent_blocks if is_lkf and M > 1 else 0
    tied = model.get("trunk") == "native"
    weights = (1 if tied else 2) * V * D + depth * (12 * D * D + 6 * D * C) + L * D
    again = model.get("activation_checkpointing", False)
    shared, branch = (CHECKPOINTED, CHECKPOINTED) if again else (KEPT, KEPT_LATENT)
    behind = bool(latent) and model.get("latent_site") == "after_attention"
    apart = model.get("block_components", 1) > 1 and not behind
    rows = _rows_with_gradient(loss, M, apart)
    if behind:
        blocks = shared * depth + (CHECKPOINTED if again else KEPT_BEHIND) * latent * rows
    else:
        blocks = shared * (depth - latent) + branch * latent * rows
    if latent and rows < M and not behind:  # every component is scored before some are kept
        blocks += PASSING * M
    width = D * L * FLOAT
    full = _holds_all_logits(config, M)
    logits = V * L * FLOAT
    train = width * (blocks + GATHERED * M)
    check = width * (PASSING * M + GATHERED * M)
    if full == "every":
        train += LOGITS * logits * M
        check += LOGITS_PASSING * logits * M
    elif full == "gathered":
        train += LOGITS * logits * M / 2
        check += LOGITS_PASSING * logits * M / 2
    train *= method.rows(config)
    states = STATES + method.holds_teacher
    # sampling holds the law of every position
    return StepMemory(PROGRAM + states * FLOAT * weights, train, max(check, 2 * logits))


def _rows_with_gradient(loss: Mapping[str, Any], M: int, apart: bool) -> float:
    """Components per sequence whose graph is kept; ``apart``: blocks may draw any of them."""
    if loss.get("backward", "dense") == "drawn" and not apart:
        return float(min(M, loss["drawn"]))
    return float(M)


def _holds_all_logits(config: DictConfig, M: int) -> str:
    """``every`` position's logits, the ``gathered`` ones', or ``none`` at once."""
    head = config.loss.get("token_head", "auto")
    if method_of(config).by_chunks(config):
        return "none"
    if not is_latent_kernel(config) or head == "mdlm":
        return "every"
    if head == "auto" and M == 1 and config.loss.name == "mixture":
        return "every"
    return "gathered" if head in ("full", "torch") else "none"


def vocabulary_size(data: Mapping[str, Any]) -> int:
    """V, or a large one where the tokenizer has not been read."""
    name = data["tokenizer_name_or_path"]
    if name == TRAIN:
        return int(data["vocab_size"])
    if name in OF_NAMES:
        return OF_NAMES[name]
    settings = settings_of(data)
    own = CORPORA[settings.kind].own_tokenizer(settings)
    return LARGE_VOCABULARY if own is None else token_ids(own).vocab_size


def on_cpu(config: DictConfig) -> bool:
    """Whether the run trains on a CPU."""
    name = config.trainer.accelerator
    return bool(name == "cpu" or (name == "auto" and not torch.cuda.is_available()))


def fitting_batch(kind: str, *, _root_: DictConfig) -> int:
    """Sequences that a device takes at once: its share of the global batch, or what fits.

    On a CPU the largest divisor of the share whose step stays under 2 GB.

    Args:
        kind: ``train`` or ``eval``.
    """
    loader, trainer = _root_.loader, _root_.trainer
    together = loader.global_batch_size if kind == "train" else loader.eval_global_batch_size
    share: int = -(-together // (trainer.devices * trainer.num_nodes))
    try:
        if share < 2 or not on_cpu(_root_):
            return share
        memory = estimate(_root_)
        one = memory.per_sequence if kind == "train" else memory.per_sequence_eval
        room = max(BUDGET - memory.fixed, FLOOR)
        most = max(int(room // one), 1)
    except (*WRONG, UserError):
        return share  # a setting is wrong, and validation will say which
    if most >= share:
        return share
    return largest_divisor(share, most)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of ``number`` up to ``most``."""
    best = 1
    for one in range(1, int(number**0.5) + 1):
        if number % one == 0:
            best = max(best, *(d for d in (one, number // one) if d <= most), 1)
    return best
