"""What the latent carries in a trained model: at the start and along sampling trajectories.

Exact per-position formulas and unbiased Monte Carlo (``information.step``); never an entropy
plugged in from counts. Unit: nats.
"""

from __future__ import annotations

import torch

from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.noise import mix
from lkf_plugin.information.blocks import block_information
from lkf_plugin.information.laws import network_law
from lkf_plugin.information.step import StepInformation, step_information
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.objective.diagnostics import dead_threshold
from lkf_plugin.progress import bar
from lkf_plugin.records.estimate import Estimate, mean_and_error
from lkf_plugin.runs.load import LoadedRun


@torch.no_grad()
def latent_information(
    run: LoadedRun,
    num_steps: int,
    trajectories: int = 8,
    draws: int = 2048,
    seed: int = 0,
) -> dict[str, Estimate]:
    """I(z) and TC of the full step from all masks, and of what is left along trajectories.

    Args:
        run: the model.
        num_steps: J of the trajectories, whose components are drawn from the router.
        trajectories: how many; each step's figures are means over them.
        draws: Monte Carlo draws of I(k) at the all-mask state; a quarter at the others.
        seed: of the trajectories and draws.

    Returns:
        ``information``, ``total_correlation``, ``router_entropy``, ``components_alive`` at the
        all-mask state; ``information.step[j]``, ``router_entropy.step[j]`` and
        ``total_correlation.step[j]`` at the states before step j = 1 .. J - 1.
    """
    network = run.network()
    device = next(run.module.backbone.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    structure = network.structure
    if structure.has_blocks:
        steps = NetworkSteps(network)
    else:
        of_host = run.module._process_sigma
        law = network_law(run.module.backbone, process_sigma=of_host, two_time=False)

    def information_at(x_1L: torch.Tensor, t: float, count: int) -> StepInformation | None:
        masked_L = x_1L[0] == network.mask_index
        if not masked_L.any():
            return None
        if structure.has_blocks:
            p, logp_1MLV = steps.law(x_1L, 1 - t)
            return block_information(structure, p, logp_1MLV[0], masked_L, count, generator)
        logw_BM, logp_BMLV = law(x_1L, t, 1.0)
        return step_information(logw_BM[0], logp_BMLV[0][:, masked_L], count, generator)

    start_1L = torch.full((1, run.config.model.length), network.mask_index, device=device)
    first = information_at(start_1L, 0.0, draws)
    assert first is not None
    weight_K = network.prior(start_1L)[0].exp()  # of the sequence latent
    mean_M = structure.marginals(network.potentials(start_1L))[0].exp().mean(0)
    estimates = {
        "information": Estimate(first.information.value, first.information.se, draws),
        "total_correlation": Estimate(
            first.total_correlation.value, first.total_correlation.se, draws
        ),
        "router_entropy": Estimate(first.prior_entropy, None, 1),
        "components_alive": Estimate(float((mean_M >= dead_threshold(len(mean_M))).sum()), None, 1),
    }
    if network.num_components == 1:
        return estimates
    engine = RolloutEngine(network, num_steps, run.config.sampling.eps)
    component_R = torch.multinomial(weight_K.cpu(), trajectories, True, generator=generator)
    rollouts = Rollouts.start(
        start_1L.expand(trajectories, -1),
        component_R.to(device),
        mix(seed, torch.arange(trajectories, device=device)),
    )
    for j in bar(range(1, num_steps), "information", "step"):
        engine.run_step(rollouts)
        t = 1 - engine.tau[j]
        seen = [information_at(x_1L, t, max(draws // 4, 1)) for x_1L in rollouts.x_RL.split(1)]
        open_states = [one for one in seen if one is not None]
        if open_states:
            values = [one.information.value for one in open_states]
            estimates[f"information.step[{j}]"] = mean_and_error(values)
            totals = [one.total_correlation.value for one in open_states]
            estimates[f"total_correlation.step[{j}]"] = mean_and_error(totals)
        router_R = structure.entropy(network.potentials(rollouts.x_RL, engine.tau[j]))
        estimates[f"router_entropy.step[{j}]"] = mean_and_error(router_R.cpu().numpy())
    return estimates
