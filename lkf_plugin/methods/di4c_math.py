"""Di4C's mathematics: a student that mixes factorised laws over a latent, taught in one-step terms.

The student's law is an average over N latents of products over positions. It is pulled towards the
teacher on small noise, and elsewhere towards its own law one teacher step further on, so that it
learns the dependence that a product cannot have. Both targets are likelihoods of a mixture, whose
draws are noisy; each comes with a control variate, the same term for the product of the mixture's
marginals, whose expectation is known in closed form.

Shape legend: B sequences, N latents, L positions, V vocabulary. Unit: nats.
Source: Hayakawa et al. 2025 (Distillation of Discrete Diffusion through Dimensional Correlations),
and sony/di4c, sdtt/ MultiRoundSDTT.di4c_loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

DELTA = 0.02  # times below it learn from the teacher alone
EMBEDDING = 128  # size of the latent's embedding
DATA_WEIGHT, DATA_SLOPE = 0.1, 20.0


class Di4CTerms(NamedTuple):
    """The parts of the loss per sequence, each [B]; the loss is ``distil + data + consistency``.

    Attributes:
        distil: KL of each latent's product from the teacher; times below delta alone.
        data: weighted correlation on the data, and the marginals' KL from the teacher.
        data_correlation: the first part of ``data`` before its weight.
        consistency: correlation on the student's own draws, and the marginals' KL; from delta on.
        consistency_correlation: its first part.
    """

    distil: Tensor
    data: Tensor
    data_correlation: Tensor
    consistency: Tensor
    consistency_correlation: Tensor

    @property
    def loss(self) -> Tensor:
        """Mean over sequences, 0-dim."""
        return (self.distil + self.data + self.consistency).mean()


def data_weight(t_B: Tensor) -> Tensor:
    """Weight of the correlation on the data at time t: little where little is masked."""
    return DATA_WEIGHT * torch.sigmoid(DATA_SLOPE * (t_B - 0.5))


def mean_over_latents(logp: Tensor, dim: int = 1) -> Tensor:
    """Log of the mean of probabilities along the latents' dimension."""
    return torch.logsumexp(logp, dim=dim) - math.log(logp.shape[dim])


def gathered(logp_BNLV: Tensor, x_BSL: Tensor) -> Tensor:
    """log p of tokens under each latent, [B, S, N, L], for S texts per sequence."""
    S, N = x_BSL.shape[1], logp_BNLV.shape[1]
    wide = logp_BNLV[:, None].expand(-1, S, -1, -1, -1)
    index = x_BSL[:, :, None, :, None].expand(-1, -1, N, -1, 1)
    return wide.gather(-1, index).squeeze(-1)


def mixture_log_prob(logp_BNLV: Tensor, x_BSL: Tensor) -> Tensor:
    """Log-probability of whole texts under the mixture, [B, S]."""
    return mean_over_latents(gathered(logp_BNLV, x_BSL).sum(-1), dim=2)


def correlation_gain(logp_BNLV: Tensor, x_BSL: Tensor) -> Tensor:
    """Log-probability under the mixture less that under the product of its marginals, [B, S].

    The second is the control variate. Zero where all latents agree.
    """
    each_BSNL = gathered(logp_BNLV, x_BSL)
    joint_BS = mean_over_latents(each_BSNL.sum(-1), dim=2)
    return joint_BS - mean_over_latents(each_BSNL, dim=2).sum(-1)


def divergence(p_BLV: Tensor, q_BLV: Tensor) -> Tensor:
    """KL(p || q) of log-probabilities, summed over positions, [B]."""
    return (p_BLV.exp() * (p_BLV - q_BLV)).sum((-1, -2))


def di4c_terms(
    x0_BL: Tensor,
    t_B: Tensor,
    teacher_xt_BLV: Tensor,
    student_xt_BNLV: Tensor,
    student_xs_BNLV: Tensor,
    drawn_BNL: Tensor,
    delta: float = DELTA,
) -> Di4CTerms:
    """The loss of a batch from log-probabilities; the original takes one sequence at a time.

    Args:
        x0_BL: data.
        t_B: times.
        teacher_xt_BLV: teacher at x_t (of a mixture teacher, its mean over latents).
        student_xt_BNLV: student at x_t under N latents, with gradient.
        student_xs_BNLV: student at x_s, a teacher's step after x_t, under N other latents, without.
        drawn_BNL: a text from each of ``student_xs``.
    """
    marginal_BLV = mean_over_latents(student_xt_BNLV)
    later_BLV = mean_over_latents(student_xs_BNLV)
    small_B = t_B < delta
    data_gain_B = -correlation_gain(student_xt_BNLV, x0_BL[:, None]).squeeze(1)
    from_teacher_B = divergence(teacher_xt_BLV, marginal_BLV)
    per_latent_BN = torch.stack(
        [divergence(teacher_xt_BLV, one) for one in student_xt_BNLV.unbind(1)], dim=1
    )
    own_gain_B = -correlation_gain(student_xt_BNLV, drawn_BNL).mean(1)
    nothing = torch.zeros_like(from_teacher_B)
    return Di4CTerms(
        distil=torch.where(small_B, per_latent_BN.mean(1), nothing),
        data=data_weight(t_B).to(data_gain_B) * data_gain_B + from_teacher_B,
        data_correlation=data_gain_B,
        consistency=torch.where(small_B, nothing, own_gain_B + divergence(later_BLV, marginal_BLV)),
        consistency_correlation=torch.where(small_B, nothing, own_gain_B),
    )


def latent_embedding(z_B: Tensor, size: int = EMBEDDING) -> Tensor:
    """Sines, then cosines of 1000 z at falling frequencies, [B, size].

    Source: Di4C, dit_orig.transformer_timestep_embedding.
    """
    half = size // 2
    rate = math.log(10000) / (half - 1)
    frequencies = torch.exp(torch.arange(half, dtype=z_B.dtype, device=z_B.device) * -rate)
    angles = (1000 * z_B)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1)
