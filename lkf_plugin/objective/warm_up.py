r"""The first steps of a training whose latents EM has found: clean posteriors as fixed weights.

Uniform block latents lie on a saddle, which training by gradient leaves slowly or not at all. A
context-free law of the same structure (``latents.em``) says within seconds what its components
are; given clean text its posterior is known, and for some steps the network learns

.. math:: \omega \sum_{i\ masked} \sum_k -\gamma_{g(i)k} \log P_i^k(x_i)
          - \mathrm{E}_q \log \pi(z | x_t)

so that components become those of the law and potentials learn to read them from what is visible.
Then the exact objective goes on.

Shape legend: B sequences, G groups, M components, L positions, Q positions of pairs. Unit: nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.latents.em import ContextFreeLaw
from lkf_plugin.latents.structure import expected_log_prior
from lkf_plugin.objective.components import counted_places
from lkf_plugin.objective.mixture import Mixture
from lkf_plugin.objective.objective import MDLM_HEAD, Corruption, Value
from lkf_plugin.objective.two_phase import BackwardPlan, group_weights, needed_pairs
from lkf_plugin.token_head.logprob import weighted_token_logprob

NEGLIGIBLE = 1e-3  # posterior weight that is not worth a branch pass


@dataclass
class WarmUp:
    """The objective of the first steps.

    Attributes:
        law: what EM found.
        steps: optimizer steps that it lasts.
        mixture: the objective that follows, for its head and its draws per group.
    """

    law: ContextFreeLaw
    steps: int
    mixture: Mixture

    def train(self, backbone: LatentKernelBackbone, corruption: Corruption) -> Value:
        """The loss of a batch; only components with weight get a branch pass, and one pass."""
        c = corruption
        batch, length = c.xt_BL.shape
        self.law = self.law.on(c.xt_BL.device)
        clean = self.law.posterior(c.target_BL)
        state = backbone.encode(c.xt_BL, c.sigma_B)
        potentials = backbone.route(state)
        places = counted_places(c.counted_BL)
        plan = self.mixture.plan
        if plan is None or not (plan.drawn or plan.threshold):
            plan = BackwardPlan(threshold=NEGLIGIBLE)
        weight_BGM = group_weights(clean.gamma_BGM.contiguous(), plan, backbone.late)
        pairs = needed_pairs(backbone, weight_BGM, places, length)
        at = Places(pairs.pair_Q, pairs.position_Q)
        hidden_QD = backbone.branch_hidden(state, at, pairs.row_R, pairs.component_R)
        row_Q = pairs.row_R[pairs.pair_Q]
        head = self.mixture.head
        components, logp_Q = weighted_token_logprob(
            hidden_QD,
            backbone.head_weight,
            backbone.head_bias,
            c.target_BL[places][pairs.source_Q],
            -c.weight_B[row_Q] * pairs.weight_Q,
            backbone.mask_index,
            "chunked" if head.backend == MDLM_HEAD else head.backend,
            head.chunk_rows,
        )
        prior_B = -expected_log_prior(potentials, clean.counts)
        tokens = c.attention_BL.sum()
        loss = (components + prior_B.sum()) / tokens
        term_Q = -c.weight_B[row_Q] * pairs.weight_Q * logp_Q.detach()
        nlls_BL = torch.zeros(batch, length, dtype=term_Q.dtype, device=term_Q.device)
        nlls_BL.index_put_((row_Q, pairs.position_Q), term_Q, accumulate=True)
        diagnostics: dict[str, Tensor] = {"warm_up_nll": loss.detach()}
        return Value(loss, nlls_BL.sum(-1) + prior_B.detach(), nlls_BL, 0.0, diagnostics)
