"""The sampler's network in one compiled graph, for GPUs where launching kernels is what takes time.

Rows drop out and positions differ from step to step, which a captured graph cannot follow. So the
graph holds trunk and latent branch of whole rows, their number padded to a power of two (one
recording each under ``reduce-overhead``), and the positions are picked from what it gives.

Shape legend: R rows, P rows padded, L positions, N gathered (row, position) pairs, D width,
C conditioning.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class CompiledRows:
    """Rows through trunk and branch by ``torch.compile``.

    Equal to the plain network up to rounding: kernels are fused, so that a token whose uniform
    falls within rounding of an edge of the CDF may differ. The first call compiles for minutes.

    Args:
        backbone: in eval mode.
        mode: of ``torch.compile``; ``reduce-overhead`` captures CUDA graphs on a GPU.
    """

    def __init__(self, backbone: LatentKernelBackbone, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"compile mode {mode!r} is unknown: {', '.join(MODES)}")
        self.backbone = backbone
        self._graph = torch.compile(self._rows, mode=mode, dynamic=True)

    def hidden(
        self,
        x_RL: Tensor,
        sigma_R: Tensor,
        component_R: Tensor,
        row_N: Tensor,
        position_N: Tensor,
    ) -> Tensor:
        """Head inputs of (row, position) pairs, [N, D]; arguments as in ``DecodeNetwork.hidden``.

        The answer shares no memory with the graph, whose buffers the next call overwrites.
        """
        rows, device = x_RL.shape[0], x_RL.device
        # at least two: sizes 0 and 1 would be compiled apart
        padded = max(2, 1 << (rows - 1).bit_length())
        row_P = torch.arange(padded, device=device).clamp(max=rows - 1)
        torch.compiler.cudagraph_mark_step_begin()
        h_PLD, act_PC = self._graph(x_RL[row_P], sigma_R[row_P], component_R[row_P])
        h_ND = h_PLD[row_N, position_N]
        return self.backbone.trunk.output_hidden(h_ND, act_PC, row_N)

    def _rows(self, x_PL: Tensor, sigma_P: Tensor, component_P: Tensor) -> tuple[Tensor, Tensor]:
        state = self.backbone.encode(x_PL, sigma_P)
        every_P = torch.arange(x_PL.shape[0], device=x_PL.device)
        branch = self.backbone.branch(state, every_P, component_P)
        return branch.h_RLD, branch.act_RC
