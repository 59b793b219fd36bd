"""LKF for ``transformers``: a masked diffusion language model with one latent per sequence.

This file is all the code that an exported folder needs::

    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    samples = model.sample(num_samples=4, num_steps=8, policy="best_of_m", seed=1)
    texts = tokenizer.batch_decode(samples.input_ids, skip_special_tokens=True)

* ``forward``: the marginal denoiser's log-probabilities log sum_k w_k P^k under SUBS (at M = 1 the
  network's logits); with ``labels`` the mixture's loss, too
* ``sample``: commit (one frozen component) or best-of-M, also from prompts with gaps
* ``training_loss``: draws times and masks, for fine-tuning with any trainer
* ``from_pretrained(..., variant="raw")``: the weights that were trained, where they were averaged

Times: MDLM's tau runs from 0 (data) to 1 (all masked); sigma = -log(1 - (1 - eps) tau).

Shape legend: B sequences, M components, R rows (sequence, component), L positions, G samples,
C candidates, N gathered (row, position) pairs, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

NEG_INFINITY = -1_000_000.0
NOISE_SLOPE = 1 - 1e-3  # of the chance of a mask in tau
NATIVE_TIME_SCALE = 1000.0


class LKFConfig(PretrainedConfig):
    """Sizes and process of an exported network.

    Attributes:
        network_type: ``lkf``, or ``ddit`` for MDLM's network without a latent.
        trunk: ``matched`` (MDLM's block) or ``native`` (the paper's).
        num_components, latent_blocks: M, and how many of the last blocks see the latent.
        time_conditioning: whether the network is told the noise.
        sampling_eps: smallest time of training.
        grid_eps: time at which sampling ends.
    """

    model_type = "lkf"

    def __init__(
        self,
        network_type: str = "lkf",
        trunk: str = "matched",
        vocab_size: int = 100,
        mask_index: int = 99,
        length: int = 128,
        hidden_size: int = 128,
        cond_dim: int = 128,
        n_blocks: int = 4,
        n_heads: int = 4,
        dropout: float = 0.0,
        num_components: int = 8,
        latent_blocks: int = 1,
        time_conditioning: bool = False,
        sampling_eps: float = 1e-3,
        grid_eps: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        self.network_type = network_type
        self.trunk = trunk
        self.vocab_size = vocab_size
        self.mask_index = mask_index
        self.length = length
        self.hidden_size = hidden_size
        self.cond_dim = cond_dim
        self.n_blocks = n_blocks
        self.n_heads = n_heads
        self.dropout = dropout
        self.num_components = num_components
        self.latent_blocks = latent_blocks
        self.time_conditioning = time_conditioning
        self.sampling_eps = sampling_eps
        self.grid_eps = grid_eps
        super().__init__(**kwargs)


@dataclass
class LKFOutput(ModelOutput):
    """What ``forward`` gives.

    Attributes:
        loss: nats per token, where labels were given.
        logits: [B, L, V].
    """

    loss: Tensor | None = None
    logits: Tensor | None = None


class LKFSamples(NamedTuple):
    """Finished samples.

    Attributes:
        input_ids: [G, L].
        component: of the delivered chain, [G].
        score: of every candidate under best-of-M, lower is better, inf where a component was left
            out, [G, M]; None under commit.
    """

    input_ids: Tensor
    component: Tensor
    score: Tensor | None


# --- layers --------------------------------------------------------------------------------------


class WeightOnlyLayerNorm(nn.Module):
    """LayerNorm with a weight and no bias, in float32 or better."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x if x.dtype == torch.float64 else x.float()
            normed = F.layer_norm(wide, (wide.shape[-1],))
        return (normed * self.weight).to(self.weight.dtype)


class TimestepEmbedder(nn.Module):
    """Sinusoidal features of a scalar and a two-layer MLP."""

    def __init__(self, cond_dim: int, num_features: int = 256) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(num_features, cond_dim), nn.SiLU(), nn.Linear(cond_dim, cond_dim)
        )
        self.num_features = num_features

    def forward(self, t_B: Tensor) -> Tensor:
        half = self.num_features // 2
        freqs = torch.exp(-math.log(10_000) * torch.arange(half, dtype=torch.float32) / half)
        angles = t_B[:, None].float() * freqs.to(t_B.device)[None]
        features = torch.cat((angles.cos(), angles.sin()), dim=-1)
        return self.mlp(features.to(next(self.mlp.parameters()).dtype))


class TokenTable(nn.Module):
    """Token embeddings."""

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, dim))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, x_BL: Tensor) -> Tensor:
        return self.embedding[x_BL]


class Rotary(nn.Module):
    """Rotary position angles, base 10,000."""

    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2).float() / head_dim
        self.register_buffer("inv_freq", 1.0 / 10_000.0**exponents)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """(cos, sin), each [L, E / 2]."""
        positions = torch.arange(length, device=self.inv_freq.device).type_as(self.inv_freq)
        angles = torch.outer(positions, self.inv_freq)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each pair (x_e, x_{e + E/2}) of [R, L, H, E] by its position's angle."""
    cos, sin = (angle.to(x.dtype)[:, None, :] for angle in cos_sin)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x (1 + scale) + shift."""
    return x * (1 + scale) + shift


class SwiGLU(nn.Module):
    """W_o (SiLU(W_1 z) * W_2 z)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = 32 * -(-8 * dim // 96)
        self.w1 = nn.Linear(dim, inner, bias=False)
        self.w2 = nn.Linear(dim, inner, bias=False)
        self.w_out = nn.Linear(inner, dim, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        return self.w_out(F.silu(self.w1(z)) * self.w2(z))


class Block(nn.Module):
    """Attention and MLP, each normed, modulated, gated and added."""

    def __init__(self, config: LKFConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.native = config.trunk == "native"
        self.n_heads = config.n_heads
        self.dropout = config.dropout
        self.norm1 = nn.RMSNorm(dim, eps=1e-6) if self.native else WeightOnlyLayerNorm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim, eps=1e-6) if self.native else WeightOnlyLayerNorm(dim)
        self.mlp: nn.Module
        if self.native:
            self.mlp = SwiGLU(dim)
        else:
            wide = (nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
            self.mlp = nn.Sequential(*wide)
        self.adaLN_modulation = nn.Linear(config.cond_dim, 6 * dim)

    def forward(self, x: Tensor, act_RC: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        first, second, gate_a, third, fourth, gate_m = self.adaLN_modulation(act_RC)[:, None].chunk(
            6, dim=-1
        )
        # the two trunks write shift and scale in opposite orders
        shift_a, scale_a = (second, first) if self.native else (first, second)
        shift_m, scale_m = (fourth, third) if self.native else (third, fourth)
        qkv = self.attn_qkv(modulate(self.norm1(x), shift_a, scale_a))
        q, k, v = qkv.unflatten(-1, (3, self.n_heads, -1)).unbind(dim=2)
        q, k, v = (y.transpose(1, 2) for y in (rotate(q, cos_sin), rotate(k, cos_sin), v))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + gate_a * self._drop(self.attn_out(attended))
        return x + gate_m * self._drop(self.mlp(modulate(self.norm2(x), shift_m, scale_m)))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, p=self.dropout, training=self.training)


class MatchedOutput(nn.Module):
    """Final norm, modulation and head of the matched trunk."""

    def __init__(self, config: LKFConfig) -> None:
        super().__init__()
        self.norm_final = WeightOnlyLayerNorm(config.hidden_size)
        self.linear = nn.Linear(config.hidden_size, config.vocab_size)
        self.adaLN_modulation = nn.Linear(config.cond_dim, 2 * config.hidden_size)


# --- trunk, router, latent branch ----------------------------------------------------------------


class Trunk(nn.Module):
    """Embeddings, blocks and head, matched or native."""

    def __init__(self, config: LKFConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.native = config.trunk == "native"
        if self.native:
            self.token_embed = nn.Embedding(config.vocab_size, dim)
            self.position_embed = nn.Embedding(config.length, dim)
            for table in (self.token_embed, self.position_embed):
                nn.init.normal_(table.weight, std=dim**-0.5)
            self.t_map = TimestepEmbedder(config.cond_dim)
            self.s_map = TimestepEmbedder(config.cond_dim)
        else:
            self.vocab_embed = TokenTable(config.vocab_size, dim)
            self.sigma_map = TimestepEmbedder(config.cond_dim)
        self.rotary_emb = Rotary(dim // config.n_heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
        if self.native:
            self.norm_final = nn.RMSNorm(dim, eps=1e-6)
        else:
            self.output_layer = MatchedOutput(config)

    def embed(self, x_BL: Tensor, sigma_B: Tensor) -> tuple[Tensor, Tensor]:
        """(residual stream, conditioning before its SiLU)."""
        if not self.native:
            return self.vocab_embed(x_BL), self.sigma_map(sigma_B)
        t_B = torch.exp(-sigma_B)
        cond_BC = self.t_map(NATIVE_TIME_SCALE * t_B) + self.s_map(
            NATIVE_TIME_SCALE * torch.ones_like(t_B)
        )
        return self.token_embed(x_BL) + self.position_embed.weight[: x_BL.shape[1]], cond_BC

    def run_blocks(self, h: Tensor, act_RC: Tensor, first: int, last: int) -> Tensor:
        """Blocks ``first`` to ``last`` (exclusive)."""
        cos_sin = self.rotary_emb(h.shape[1])
        for block in self.blocks[first:last]:
            h = block(h, act_RC, cos_sin)
        return h

    def head_input(self, h: Tensor, act_RC: Tensor) -> Tensor:
        """Final norm and modulation, [R, L, D]."""
        if self.native:
            return self.norm_final(h)
        out = self.output_layer
        shift, scale = out.adaLN_modulation(act_RC)[:, None].chunk(2, dim=2)
        return modulate(out.norm_final(h), shift, scale)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of head inputs."""
        if self.native:
            return F.linear(hidden, self.token_embed.weight)
        return self.output_layer.linear(hidden)


class Router(nn.Module):
    """log w: mean over positions, two-layer MLP, log-softmax over the components."""

    def __init__(self, dim: int, num_components: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, num_components)

    def forward(self, h_BLD: Tensor) -> Tensor:
        with torch.autocast(h_BLD.device.type, enabled=False):
            pooled = h_BLD.to(self.hidden.weight.dtype).mean(dim=1)
            logits = self.out(F.silu(self.hidden(pooled)))
            wide = logits if logits.dtype == torch.float64 else logits.float()
            return torch.log_softmax(wide, dim=-1)


class Backbone(nn.Module):
    """Component denoisers P^k and router w over a trunk."""

    def __init__(self, config: LKFConfig) -> None:
        super().__init__()
        self.trunk = Trunk(config)
        self.num_components = config.num_components
        self.first_latent = config.n_blocks - config.latent_blocks
        if config.network_type == "lkf":
            self.router = Router(config.hidden_size, config.num_components)
            self.latent_emb = nn.Embedding(config.num_components, config.cond_dim)

    def encode(self, x_BL: Tensor, sigma_B: Tensor) -> tuple[Tensor, Tensor]:
        """(residual stream, conditioning) after the shared blocks."""
        h_BLD, cond_BC = self.trunk.embed(x_BL, sigma_B)
        return self.trunk.run_blocks(h_BLD, F.silu(cond_BC), 0, self.first_latent), cond_BC

    def log_prior(self, h_BLD: Tensor) -> Tensor:
        """log w, [B, M]."""
        if self.num_components == 1:
            return torch.zeros(len(h_BLD), 1, device=h_BLD.device)
        return self.router(h_BLD)

    def branch(self, h_BLD: Tensor, cond_BC: Tensor, component_B: Tensor) -> Tensor:
        """Head inputs of each row under its component, [B, L, D]."""
        if self.num_components > 1:
            cond_BC = cond_BC + self.latent_emb(component_B)
        act_BC = F.silu(cond_BC)
        last = len(self.trunk.blocks)
        h_BLD = self.trunk.run_blocks(h_BLD, act_BC, self.first_latent, last)
        return self.trunk.head_input(h_BLD, act_BC)


def subs_log_probs(logits: Tensor, x_BL: Tensor, mask_index: int) -> Tensor:
    """Log-probabilities of the clean token: no mask, and what is revealed stays."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    ban_V = torch.zeros(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    ban_V[mask_index] = NEG_INFINITY
    logits = logits + ban_V
    log_probs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    revealed = x_BL != mask_index
    log_probs = log_probs.masked_fill(revealed[..., None], NEG_INFINITY)
    own = torch.where(revealed, 0.0, log_probs.gather(-1, x_BL[..., None]).squeeze(-1))
    return log_probs.scatter(-1, x_BL[..., None], own[..., None])


# --- random numbers: a draw is a function of (seed, step, position, stream) ----------------------

REVEAL, TOKEN, COMPONENT, SCORE_TIME, SCORE_MASK = 1, 2, 3, 4, 5


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLIERS = (_signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB))


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _scramble(x: Tensor) -> Tensor:
    """splitmix64 (Steele, Lea and Flood 2014)."""
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def mix(*parts: Tensor | int, device: torch.device | None = None) -> Tensor:
    """One int64 seed from any number of parts, broadcast together."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    device = tensors[0].device if tensors else device
    out = torch.zeros((), dtype=torch.int64, device=device)
    for part in parts:
        word = part if isinstance(part, Tensor) else torch.tensor(_signed(part), device=device)
        out = _scramble(out ^ word)
    return out


def uniforms(seed_R: Tensor, step: int, length: int, stream: int) -> Tensor:
    """float64 uniforms in (0, 1), [R, length]."""
    positions = torch.arange(length, device=seed_R.device)
    bits = mix(seed_R[:, None], stream, step, positions[None])
    return (_shift(bits, 11).double() + 0.5) * 2.0**-53


# --- the model -----------------------------------------------------------------------------------


class LKFModel(PreTrainedModel):
    """The denoiser, its loss and its sampler."""

    config_class = LKFConfig
    base_model_prefix = "lkf"
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: LKFConfig) -> None:
        super().__init__(config)
        self.backbone = Backbone(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Layers start as their constructors leave them; an export brings every weight."""

    def network_sigma(self, sigma_B: Tensor) -> Tensor:
        """What the network is told of the noise."""
        return (
            sigma_B.float() if self.config.time_conditioning else torch.zeros_like(sigma_B.float())
        )

    def forward(
        self,
        input_ids: Tensor,
        sigma: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> LKFOutput | tuple[Tensor, ...]:
        """Denoises a batch.

        Args:
            input_ids: [B, L], ``config.mask_index`` where masked.
            sigma: [B], noise level; may be left out without time conditioning and without labels.
            attention_mask: [B, L], 0 where a position is padding; it weighs the loss alone, since
                the network was trained to attend everywhere.
            labels: [B, L], the clean tokens: adds ``loss``, the mixture likelihood of the masked
                ones under ``sigma``, weighted as MDLM's NELBO, in nats per token.
            return_dict: False gives a tuple.

        Returns:
            ``logits`` [B, L, V]: at M > 1 log sum_k w_k P^k under SUBS.
        """
        if sigma is None:
            if self.config.time_conditioning or labels is not None:
                raise ValueError("sigma is needed: the network is told the noise, or weighs by it")
            sigma = torch.zeros(len(input_ids), device=input_ids.device)
        network_sigma_B, mask_index = self.network_sigma(sigma), self.config.mask_index
        h_BLD, cond_BC = self.backbone.encode(input_ids, network_sigma_B)
        logw_BM = self.backbone.log_prior(h_BLD)
        M = self.config.num_components
        counted_BL = input_ids == mask_index
        if attention_mask is not None:
            counted_BL = counted_BL & (attention_mask > 0)
        logits: Tensor | None = None
        terms = []
        for k in range(M):
            component_B = torch.full((len(input_ids),), k, device=input_ids.device)
            hidden = self.backbone.branch(h_BLD, cond_BC, component_B)
            own = self.backbone.trunk.head(hidden)
            logp_BLV = own if M == 1 else subs_log_probs(own, input_ids, mask_index)
            if labels is not None:
                scored = subs_log_probs(own, input_ids, mask_index) if M == 1 else logp_BLV
                picked_BL = scored.gather(-1, labels[..., None]).squeeze(-1)
                terms.append(torch.where(counted_BL, picked_BL, 0.0).sum(-1))
            joint = logp_BLV if M == 1 else logw_BM[:, k, None, None] + logp_BLV
            logits = joint if logits is None else torch.logaddexp(logits, joint)
        loss = None
        if labels is not None:
            weight_B = NOISE_SLOPE / -torch.expm1(-sigma)  # 1 / tau
            log_psi_B = torch.logsumexp(logw_BM + torch.stack(terms, dim=-1), dim=-1)
            tokens = labels.numel() if attention_mask is None else attention_mask.sum()
            loss = -(weight_B * log_psi_B).sum() / tokens
        assert logits is not None
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return LKFOutput(loss=loss, logits=logits)

    def training_loss(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Loss of clean tokens under times and masks from torch's generator, nats per token."""
        batch, device = len(input_ids), input_ids.device
        u_B = torch.rand(batch, device=device)
        u_B = (u_B / batch + torch.arange(batch, device=device) / batch) % 1  # stratified
        tau_B = (1 - self.config.sampling_eps) * u_B + self.config.sampling_eps
        sigma_B = -torch.log1p(-NOISE_SLOPE * tau_B)
        masked = torch.rand(input_ids.shape, device=device) < (1 - torch.exp(-sigma_B))[:, None]
        noisy = torch.where(masked, self.config.mask_index, input_ids)
        return self(noisy, sigma_B, attention_mask, labels=input_ids).loss

    # --- sampling --------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self,
        num_samples: int = 1,
        num_steps: int = 32,
        policy: str = "auto",
        seed: int = 1,
        input_ids: Tensor | None = None,
        length: int | None = None,
        selector: str = "nelbo",
        score_draws: int = 4,
        temperature: float = 1.0,
        min_prior: float | None = None,
    ) -> LKFSamples:
        """Samples; sample g is a function of the weights, these settings, ``seed`` and g.

        Args:
            num_samples: G.
            num_steps: J.
            policy: ``commit`` draws a component from the router and holds it; ``best_of_m`` runs
                every component and takes the best score; ``auto`` is the latter at M > 1.
            seed: of all samples.
            input_ids: [L] or [G, L] start states, ``config.mask_index`` where to fill; None is
                all masks. What is given stays.
            length: of all-mask starts; None takes the length of training.
            selector: of best_of_m: ``nelbo`` (the mixture's own NELBO, ``score_draws`` draws) or
                ``evidence`` (the probability of what a chain revealed).
            score_draws: T.
            temperature: of the token draw; 1 is the model's law.
            min_prior: components less likely than this are left out; None is 1 / (10 M).

        Raises:
            ValueError: an unknown policy or selector.
        """
        M, mask_index = self.config.num_components, self.config.mask_index
        policy = ("commit" if M == 1 else "best_of_m") if policy == "auto" else policy
        if policy not in ("commit", "best_of_m") or selector not in ("nelbo", "evidence"):
            raise ValueError(
                f"policy={policy}, selector={selector}: take commit or best_of_m, and nelbo or "
                "evidence"
            )
        was_training, device = self.training, self.device
        self.eval()
        try:
            if input_ids is None:
                shape = (num_samples, length or self.config.length)
                start_GL = torch.full(shape, mask_index, dtype=torch.int64, device=device)
            else:
                rows = input_ids if input_ids.dim() == 2 else input_ids.expand(num_samples, -1)
                start_GL = rows.to(device)
            number_G = torch.arange(len(start_GL), device=device)
            seed_G = mix(seed, number_G)
            prior_GM = self._prior(start_GL)
            if policy == "commit":
                cdf_GM = prior_GM.exp().cumsum(-1)
                u_G1 = uniforms(seed_G, 0, 1, COMPONENT) * cdf_GM[:, -1:]
                component_G = torch.searchsorted(cdf_GM, u_G1, right=True).squeeze(-1)
                chain_G = mix(seed_G, component_G)
                x_GL, _ = self._chains(start_GL, component_G, chain_G, num_steps, temperature)
                return LKFSamples(x_GL, component_G, None)
            floor = 0.1 / M if min_prior is None else min_prior
            alive_GM = prior_GM.exp() >= floor
            alive_GM = alive_GM.scatter(-1, prior_GM.argmax(-1, keepdim=True), True)
            sample_R, component_R = alive_GM.nonzero(as_tuple=True)
            start_RL, chain_R = start_GL[sample_R], mix(seed_G[sample_R], component_R)
            x_RL, evidence_R = self._chains(start_RL, component_R, chain_R, num_steps, temperature)
            score_R = -evidence_R
            if selector == "nelbo":
                free_RL = start_RL == mask_index
                score_R = self._nelbo(x_RL, free_RL, seed_G[sample_R], score_draws)
            score_GM = score_R.new_full(alive_GM.shape, torch.inf)
            score_GM[sample_R, component_R] = score_R
            row_GM = torch.zeros(alive_GM.shape, dtype=torch.int64, device=device)
            row_GM[sample_R, component_R] = torch.arange(len(sample_R), device=device)
            pick_G = score_GM.argmin(-1)
            x_GL = x_RL[row_GM.gather(-1, pick_G[:, None]).squeeze(-1)]
            return LKFSamples(x_GL, pick_G, score_GM)
        finally:
            self.train(was_training)

    def _sigma_at(self, tau: float, rows: int) -> Tensor:
        tau_R = torch.full((rows,), tau, dtype=torch.float32, device=self.device)
        return self.network_sigma(-torch.log1p(-NOISE_SLOPE * tau_R))

    def _prior(self, x_GL: Tensor) -> Tensor:
        """log w at the start, float64 [G, M]; equal starts are run once."""
        one_SL, number_G = torch.unique(x_GL, dim=0, return_inverse=True)
        h, _ = self.backbone.encode(one_SL, self._sigma_at(1.0, len(one_SL)))
        return self.backbone.log_prior(h).double()[number_G]

    def _chains(
        self, x_RL: Tensor, component_R: Tensor, seed_R: Tensor, num_steps: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """(finished rows, log-probability of what each revealed) under frozen components."""
        eps, mask_index = self.config.grid_eps, self.config.mask_index
        tau = [1.0 - (1.0 - eps) * j / num_steps for j in range(num_steps + 1)]
        x_RL, evidence_R = x_RL.clone(), torch.zeros(len(x_RL), dtype=torch.float64).to(self.device)
        for j in range(num_steps + 1):
            reveal_RL = x_RL == mask_index
            if j < num_steps:
                u_RL = uniforms(seed_R, j, x_RL.shape[1], REVEAL)
                reveal_RL &= u_RL < (tau[j] - tau[j + 1]) / tau[j]
            active_R = reveal_RL.any(-1).nonzero().squeeze(-1)
            if len(active_R) == 0:
                continue
            sigma = self._sigma_at(tau[j], len(active_R))
            h, cond = self.backbone.encode(x_RL[active_R], sigma)
            hidden = self.backbone.branch(h, cond, component_R[active_R])
            row_N, position_N = reveal_RL[active_R].nonzero(as_tuple=True)
            u_N = uniforms(seed_R[active_R], j, x_RL.shape[1], TOKEN)[row_N, position_N]
            drawn = [
                self._draw(part, u, temperature, greedy=j == num_steps)
                for part, u in zip(
                    hidden[row_N, position_N].split(128), u_N.split(128), strict=True
                )
            ]
            row_N = active_R[row_N]
            x_RL[row_N, position_N] = torch.cat([token for token, _ in drawn])
            gained = torch.zeros(x_RL.shape, dtype=torch.float64, device=x_RL.device)
            gained[row_N, position_N] = torch.cat([logp for _, logp in drawn])
            evidence_R += gained.sum(-1)
        return x_RL, evidence_R

    def _draw(
        self, hidden_ND: Tensor, u_N: Tensor, temperature: float, greedy: bool
    ) -> tuple[Tensor, Tensor]:
        """Tokens by inverse CDF in float64, and their log-probabilities at temperature 1."""
        logits_NV = self.backbone.trunk.head(hidden_ND).double()
        logits_NV[:, self.config.mask_index] += NEG_INFINITY
        if greedy:  # masks that outlived the last step
            token_N = logits_NV.argmax(-1)
        else:
            scaled = logits_NV if temperature == 1.0 else logits_NV / temperature
            cdf_NV = (scaled - scaled.amax(-1, keepdim=True)).exp().cumsum(-1)
            token_N = torch.searchsorted(cdf_NV, (u_N * cdf_NV[:, -1])[:, None], right=True)[:, 0]
        picked_N = logits_NV.gather(-1, token_N[:, None]).squeeze(-1)
        return token_N, picked_N - torch.logsumexp(logits_NV, dim=-1)

    def _nelbo(self, x_RL: Tensor, free_RL: Tensor, seed_R: Tensor, draws: int) -> Tensor:
        """Monte Carlo mixture NELBO, nats per sequence, float64 [R]; draws are shared by a seed."""
        total_R = torch.zeros(len(x_RL), dtype=torch.float64, device=x_RL.device)
        mask_index = self.config.mask_index
        for draw in range(draws):
            u_R = uniforms(seed_R, draw, 1, SCORE_TIME).squeeze(-1)
            tau_R = 1e-3 + (1 - 1e-3) * (draw + u_R) / draws
            sigma_R = -torch.log1p(-NOISE_SLOPE * tau_R)
            u_RL = uniforms(seed_R, draw, x_RL.shape[1], SCORE_MASK)
            hide_RL = (u_RL < (1 - torch.exp(-sigma_R))[:, None]) & free_RL
            noisy_RL = torch.where(hide_RL, mask_index, x_RL)
            for rows in torch.arange(len(x_RL), device=x_RL.device).split(64):
                log_psi = self._log_psi(noisy_RL[rows], x_RL[rows], sigma_R[rows])
                total_R[rows] -= log_psi / tau_R[rows]
        return total_R / draws

    def _log_psi(self, noisy_BL: Tensor, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        """log sum_k w_k P^k of the masked tokens, float64 [B]."""
        h, cond = self.backbone.encode(noisy_BL, self.network_sigma(sigma_B))
        logw_BM = self.backbone.log_prior(h).double()
        row_N, position_N = (noisy_BL == self.config.mask_index).nonzero(as_tuple=True)
        ell_BM = torch.zeros_like(logw_BM)
        for k in range(self.config.num_components):
            component_B = torch.full((len(x_BL),), k, device=x_BL.device)
            hidden_ND = self.backbone.branch(h, cond, component_B)[row_N, position_N]
            target_N = x_BL[row_N, position_N]
            for part, target, row in zip(
                hidden_ND.split(256), target_N.split(256), row_N.split(256), strict=True
            ):
                logits = self.backbone.trunk.head(part)
                logits = logits if logits.dtype == torch.float64 else logits.float()
                logits[:, self.config.mask_index] += NEG_INFINITY
                picked = logits.gather(-1, target[:, None]).squeeze(-1)
                logp = picked - torch.logsumexp(logits, dim=-1)
                ell_BM[:, k].index_add_(0, row, logp.double())
        return torch.logsumexp(logw_BM + ell_BM, dim=-1)
