"""The model ``lkf`` of lm-evaluation-harness (``lm_eval.api.model.LM``).

Requests go to processes as the harness deals them; what one request gets does not depend on that.
Source: the interface as lm-eval 0.4.13 documents it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from torch import Tensor

from lkf_plugin.data.prompt import frame_of
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.sample import sample
from lkf_plugin.errors import UserError
from lkf_plugin.harness.pieces import Framing
from lkf_plugin.harness.scoring import Scorer, ScoringOptions
from lkf_plugin.progress import bar
from lkf_plugin.runs.load import load_run

ANSWER_TOKENS = 64  # where a task does not say


@register_model("lkf")
class LKFHarness(LM):
    """A trained run.

    Args:
        path: its run folder.
        checkpoint: a file in place of its best (else last) one.
        device: of the weights; None takes the first GPU of this process, else the CPU.
        policy: how answers are drawn: a decoding policy; None is the run's ``decode``.
        temperature: of their tokens; None is the run's.
        batch_size, max_batch_size: of the harness; ``auto`` takes the default.
        **scoring: see ``ScoringOptions``.

    Raises:
        UserError: no such run, or an unknown argument.
    """

    def __init__(
        self,
        path: str,
        checkpoint: str | None = None,
        device: str | None = None,
        policy: str | None = None,
        temperature: float | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        **scoring: Any,
    ) -> None:
        super().__init__()
        self._join()
        given = {key: value for key, value in scoring.items() if value is not None}
        if batch_size is not None and not str(batch_size).startswith("auto"):
            given["batch_size"] = int(batch_size)
        self.options = ScoringOptions.read(given)
        self._device = torch.device(device or _own_device())
        self.run = load_run(path, str(self._device), checkpoint)
        config, prepared = self.run.config, self.run.prepared
        frame = frame_of(prepared, config.data)
        self.framing = Framing(prepared.tokenizer, int(config.model.length), frame)
        self.scorer = Scorer(self.run, self.options)
        changed = {"policy": policy, "temperature": temperature}
        self.decode = dict(config.decode) | {k: v for k, v in changed.items() if v is not None}
        self.run.module.sampler_of(self.decode["policy"])  # an unknown one is refused here

    # --- requests ------------------------------------------------------------------------------

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether the greedy sampler says it)."""
        answers = []
        for request in self._bar(requests, "loglikelihood", disable_tqdm):
            context, continuation = request.args
            pieces = list(self.framing.pieces(context, continuation))
            scores = self.scorer.scores(pieces)
            one = (sum(score.nats for score in scores), all(score.greedy for score in scores))
            self.cache_hook.add_partial("loglikelihood", request.args, one)
            answers.append(one)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """log p(text) in nats; a text longer than a sequence is scored in pieces."""
        nats_of = []
        for request in self._bar(requests, "loglikelihood_rolling", disable_tqdm):
            (text,) = request.args
            pieces = list(self.framing.pieces("", text))
            nats = sum(score.nats for score in self.scorer.scores(pieces, greedy=False))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, nats)
            nats_of.append(nats)
        return nats_of

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers by infilling: the masks after the context are filled, the stops cut the text."""
        answers = []
        for request in self._bar(requests, "generate_until", disable_tqdm):
            context, settings = request.args
            answer = self._filled(context, settings)
            self.cache_hook.add_partial("generate_until", request.args, answer)
            answers.append(answer)
        return answers

    def _filled(self, context: str, settings: Mapping[str, Any]) -> str:
        until = settings.get("until") or []
        until = [until] if isinstance(until, str) else list(until)
        wanted = settings.get("max_gen_toks")
        wanted = ANSWER_TOKENS if wanted is None else int(wanted)
        if wanted < 1:
            raise UserError(f"max_gen_toks={wanted} leaves nothing to generate: ask for 1 or more.")
        piece, places = self.framing.prompt(context, wanted)
        steps = self.options.steps or int(self.run.config.sampling.steps)
        seed_G = mix(self.options.seed, piece.key)[None].to(self.device)
        start_GL = piece.x_L[None].to(self.device)
        decoded = sample(self.run.module, start_GL, self.decode, seed_G, steps)
        return self.framing.answer(decoded.x_GL[0, places].tolist(), until)

    def _bar(self, requests: Sequence[Any], name: str, silent: bool) -> Any:
        return bar(requests, name, "request", keep=True, shown=not silent)

    # --- processes -----------------------------------------------------------------------------

    def _join(self) -> None:
        """All processes that WORLD_SIZE speaks of."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            dist.init_process_group("gloo")
        if dist.is_initialized():
            self._rank, self._world_size = dist.get_rank(), dist.get_world_size()

    def all_gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes in the order of their ranks, on the CPU."""
        if self.world_size == 1:
            return tensor
        own = torch.atleast_1d(tensor.cpu())
        parts = [torch.empty_like(own) for _ in range(self.world_size)]
        dist.all_gather(parts, own)
        return torch.cat(parts)

    def gather_object(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """The objects of all processes at ``dst``; None elsewhere."""
        if self.world_size == 1:
            return [obj]
        parts: list[Any] | None = [None] * self.world_size if self.rank == dst else None
        dist.gather_object(obj, parts, dst=dst)
        return parts

    def barrier(self) -> None:
        """Waits for all processes."""
        if self.world_size > 1:
            dist.barrier()

    # --- what the harness notes ----------------------------------------------------------------

    @property
    def tokenizer_name(self) -> str:
        """Of its caches of requests."""
        return str(self.run.config.data.tokenizer_name_or_path)

    def get_model_info(self) -> dict[str, Any]:
        """What its results say of the model, beside the arguments."""
        config = self.run.config
        return {
            "model_checkpoint": str(self.run.checkpoint),
            "model_step": self.run.step,
            "model_num_components": int(config.model.num_components),
            "model_length": int(config.model.length),
            "model_scoring": self.options.model_dump(),
            "model_decode": {str(key): value for key, value in self.decode.items()},
        }


def _own_device() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
