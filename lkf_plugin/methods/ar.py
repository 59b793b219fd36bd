"""The autoregressive baseline: exact likelihood, one network call per token."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.baseline import Baseline, Chains
from lkf_plugin.methods.causal import CausalTransformer
from lkf_plugin.methods.method import METHODS, DrawingSettings, Method
from lkf_plugin.settings.fields import Choice
from lkf_plugin.subs import NEG_INFINITY, at_least_float32
from lkf_plugin.token_head.logprob import token_logprob


class AR(Baseline):
    """Predicts each token from those before it.

    ``method.start`` says what comes before the first: ``mask`` puts the mask there as a start
    symbol, so that every token is predicted and nats per token compare with the diffusion rows;
    ``data`` takes the first token as given (MDLM's loader writes BOS there) and leaves it out of
    the mean, as MDLM does.
    """

    backbone: CausalTransformer

    def _build_backbone(self) -> nn.Module:
        model = self.config.model
        keys = ("hidden_size", "n_blocks", "n_heads", "dropout", "activation_checkpointing")
        return CausalTransformer(self.vocab_size, **{key: model[key] for key in keys})

    def _given(self, x_BL: Tensor) -> tuple[Tensor, int]:
        """(what the network reads, first token that is predicted)."""
        if self.settings.start == "data":
            return x_BL[:, :-1], 1
        start_B1 = torch.full_like(x_BL[:, :1], self.mask_index)
        return torch.cat((start_B1, x_BL[:, :-1]), dim=1), 0

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Log-probabilities of the next token, [B, L, V]; the mask has none."""
        self.calls += 1
        logits = at_least_float32(self.backbone(x))
        ban_V = torch.zeros_like(logits[0, 0])
        ban_V[self.mask_index] = NEG_INFINITY
        return torch.log_softmax(logits + ban_V, dim=-1)

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        self.calls += 1
        given_BL, first = self._given(x0)
        target_BL, counted_BL = x0[:, first:], attention_mask[:, first:]
        head = self.backbone.output_layer.linear
        logp_N = token_logprob(
            self.backbone.hidden(given_BL).flatten(0, 1),
            head.weight,
            head.bias,
            target_BL.flatten(),
            self.mask_index,
            "chunked",
            self.config.loss.chunk_rows,
        )
        nlls_BL = -logp_N.view(target_BL.shape) * counted_BL
        self._latest = Loss(nlls_BL.sum() / counted_BL.sum(), nlls_BL, counted_BL)
        return self._latest

    def method_steps(self, num_steps: int) -> int:
        """A call a predicted token, whatever ``sampling.steps`` says."""
        return self.config.model.length - (self.settings.start == "data")

    def draw_chains(self, start_GL: Tensor, num_steps: int, eps: float) -> Chains:
        """Left to right at temperature 1; the exact likelihood comes along."""
        first, batch = self._first_token(), len(start_GL)
        x_GL = torch.full((batch, 1), first, device=self.device)
        nll_G = torch.zeros(batch, dtype=torch.float64, device=self.device)
        for _ in range(self.method_steps(num_steps)):
            logp_GV = self.forward(x_GL)[:, -1].double()
            token_G1 = self.draw(logp_GV.exp())[:, None]
            nll_G -= logp_GV.gather(-1, token_G1).squeeze(-1)
            x_GL = torch.cat((x_GL, token_G1), dim=1)
        return Chains(x_GL if self.settings.start == "data" else x_GL[:, 1:], nll_G)

    def _first_token(self) -> int:
        if self.settings.start == "mask":
            return self.mask_index
        for token in (self.tokenizer.bos_token_id, self.tokenizer.cls_token_id):
            if token is not None:
                return token
        raise UserError("method.start=data needs a tokenizer with a BOS or CLS token: take mask.")


class ARSettings(DrawingSettings):
    """What comes before the first token."""

    start: Annotated[str, Choice("mask", "data")]


METHODS.add("ar")(
    Method(
        AR,
        ARSettings,
        process={"parameterization": "ar", "diffusion": "absorbing_state"},
        network="causal",
        exact=True,
        uses_steps=False,
        fills_masks=False,
        by_chunks=lambda config: True,
        label="AR",
        color="#555555",
    )
)
