"""What SDTT's loss teaches a student without limits by a teacher without error, in closed form."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from lkf_plugin.methods.sdtt import SDTT
from lkf_plugin.methods.sdtt_math import without_mask
from lkf_plugin.subs import NEG_INFINITY, subs_log_probs

JOINT = torch.tensor(
    [[0.30, 0.02, 0.08], [0.05, 0.25, 0.00], [0.04, 0.06, 0.20]], dtype=torch.float64
)
MARGINALS = torch.stack((JOINT.sum(1), JOINT.sum(0)))
V, MASK = 88, 87  # AgreeText's
WORDS = torch.tensor([4, 9, 30])
TIME, BASE_STEPS, ROUND = 0.8, 8, 1  # two steps of a quarter


def place_of(x_BL: Tensor) -> Tensor:
    """Number of each word, and 3 for the mask."""
    place_V = torch.zeros(V, dtype=torch.int64)
    place_V[WORDS], place_V[MASK] = torch.arange(3), 3
    return place_V[x_BL]


def over_vocabulary(logits: Tensor) -> Tensor:
    """[..., 3] -> [..., V]; what is no word has no chance."""
    wide = torch.full((*logits.shape[:-1], V), NEG_INFINITY, dtype=torch.float64)
    return wide.index_copy(-1, WORDS, logits)


class Perfect(nn.Module):
    """The exact conditional law of each position of a pair of words under JOINT."""

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        laws = []
        for position, table in ((0, JOINT.T), (1, JOINT)):
            rows = torch.cat((table, table.sum(0, keepdim=True)))
            laws.append(rows[place_of(x_BL)[:, 1 - position]])
        return over_vocabulary((torch.stack(laws, 1) + 1e-9).log())


class Free(nn.Module):
    """A law of its own for each position of each masked pair."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(4, 4, 2, 3, dtype=torch.float64))

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        return over_vocabulary(self.logits[tuple(place_of(x_BL).T)])

    def law(self, *state: int) -> Tensor:
        """Of both positions, [2, 3]."""
        return self.logits[state].detach().softmax(-1)


def one_step_laws(share: float) -> tuple[Tensor, Tensor]:
    """Closed form of the mean target and of the mean of its log, both [2, 3], all masked.

    A position hears of the other's token if that one alone is revealed first: chance r (1 - r).
    """
    mean, mean_log = torch.zeros(2, 3), torch.zeros(2, 3)
    heard = share * (1 - share)
    for position, table in ((0, JOINT.T), (1, JOINT)):
        own, other = table.sum(0), table.sum(1)
        conditional = (table + 1e-9) / (table + 1e-9).sum(1, keepdim=True)
        mean[position] = (1 - heard) * own + heard * (other[:, None] * conditional).sum(0)
        logs = (other[:, None] * conditional.log()).sum(0)
        mean_log[position] = (1 - heard) * own.log() + heard * logs
    return mean.double(), mean_log.double()


@pytest.fixture
def distilled(module_of, trained):
    """``distilled("kl-fwd")``: (student, final loss) after its loss was minimised.

    The method's own loss, on 4,000 pairs with the same masks and the same rollouts throughout.
    """

    def minimise(distance: str) -> tuple[Free, float]:
        words = (f"method.distance={distance}", f"method.base_steps={BASE_STEPS}")
        module = module_of("sdtt", f"method.teacher={trained('mdlm')}", *words).train()
        assert isinstance(module, SDTT)
        module.backbone, module.round = Free(), ROUND
        module._frozen = [Perfect()]
        module._distillation_times = lambda x0: torch.full((len(x0),), TIME, dtype=torch.float64)
        torch.manual_seed(1)
        pairs = torch.multinomial(JOINT.flatten(), 4_000, replacement=True)
        x0 = WORDS[torch.stack((pairs // 3, pairs % 3), 1)]
        optimizer = torch.optim.LBFGS(
            module.backbone.parameters(),
            max_iter=80,
            tolerance_grad=1e-6,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            torch.manual_seed(2)
            optimizer.zero_grad()
            loss = module._loss(x0, torch.ones_like(x0)).loss
            loss.backward()
            return loss

        optimizer.step(closure)
        return module.backbone, float(closure().detach())

    return minimise


@pytest.mark.parametrize("distance", ("kl-fwd", "kl-bwd"))
def test_distilled_law_of_a_perfect_teacher_has_the_closed_form(distilled, distance):
    """Forward KL learns the targets' mean, which is the marginals; backward KL their normalised
    geometric mean. To 0.02 in each probability, over 2,560 rollouts.
    """
    student, loss = distilled(distance)
    step = (1 - 1e-5) / BASE_STEPS * 2**ROUND
    mean, mean_log = one_step_laws(step / TIME)
    wanted = {"kl-fwd": mean, "kl-bwd": mean_log.softmax(-1)}[distance]
    all_masked = student.law(3, 3)
    torch.testing.assert_close(all_masked, wanted, rtol=0, atol=0.02)
    torch.testing.assert_close(mean, MARGINALS, rtol=0, atol=1e-6)
    if distance == "kl-bwd":  # the two laws lie further apart than the error allowed
        assert (all_masked - MARGINALS).abs().max() > 0.05
    assert loss > 0.01  # what no product can say
    for word in range(3):  # the other word is known: nothing is lost
        for position, table in ((0, JOINT.T), (1, JOINT)):
            state = (3, word) if position == 0 else (word, 3)
            exact = (table + 1e-9)[word] / (table + 1e-9)[word].sum()
            torch.testing.assert_close(student.law(*state)[position], exact, rtol=0, atol=1e-3)


def test_forward_kl_keeps_the_marginals_and_backward_kl_sharpens():
    """No product of one step knows of dependence; what is left to gain is what is dropped."""
    mean, mean_log = one_step_laws(0.5)
    torch.testing.assert_close(mean, MARGINALS, rtol=0, atol=1e-6)
    backward = mean_log.softmax(-1)
    entropies = [-(law * law.log()).sum(-1) for law in (MARGINALS, backward)]
    # the word pair of no chance is told as one: what excludes most loses most
    assert (backward - MARGINALS).abs().max() > 0.1
    assert (entropies[1] < entropies[0]).all()


def test_targets_average_to_the_marginal_whatever_the_grid():
    """A perfect teacher's prediction is a martingale along its own steps: exact, by listing."""
    share, teacher = 0.4, Perfect()

    def says(x: Tensor) -> Tensor:
        return subs_log_probs(teacher(x, torch.zeros(1)), x, MASK)

    total = torch.zeros(2, V - 1, dtype=torch.float64)
    for first, second in itertools.product((False, True), repeat=2):
        chance = (share if first else 1 - share) * (share if second else 1 - share)
        for i, j in itertools.product(range(3), range(3)):
            weight = chance * MARGINALS[0, i] * MARGINALS[1, j]
            x = torch.tensor(
                [[int(WORDS[i]) if first else MASK, int(WORDS[j]) if second else MASK]]
            )
            target = torch.where((x == MASK)[..., None], says(x), says(torch.full((1, 2), MASK)))
            total += weight * without_mask(target, MASK)[0].exp()
    torch.testing.assert_close(total[:, WORDS], MARGINALS, rtol=0, atol=1e-6)
