r"""The closed forms of AgreeText: entropy, best losses, best few-step validity.

The slots of different features never overlap, so a sequence factorizes over its features *f*, each
with :math:`a_f` carriers and :math:`K_f` values: the topic (3C carriers, 4 values) and C numbers
(3 carriers, 2 values); the free choice of lexemes adds ``log R`` a word.

A mixture of M = 2^b components spends its b bits on features. At a state whose carriers of f are
all masked, one bit on f turns :math:`a_f` independent guesses of a bit into a single one: it saves
:math:`(a_f - 1) \log 2`. Features with a visible carrier are known and need no bits. So the bits
go to the topic first while it is hidden, then to the numbers that are hidden. This allocation is
attained by an actual mixture; that no other mixture beats it is proven for M = 1 and for
M >= 4 * 2^C, and a conjecture in between.
"""

from __future__ import annotations

import math

import numpy as np

from lkf_plugin.corpora.agreetext_grammar import CLAUSE_LENGTH, NUMBERS, SLOTS, TOPICS, carriers
from lkf_plugin.corpora.few_step import Steps, agreement_probability, power_gap, step_times
from lkf_plugin.errors import UserError

LOG2 = math.log(2.0)
NUMBER_CARRIERS = len(carriers("number"))
TOPIC_BITS = int(math.log2(len(TOPICS)))


def topic_carriers(clauses: int) -> int:
    """Number of positions that show the topic: three a clause."""
    return len(carriers("topic")) * clauses


def configurations(clauses: int) -> int:
    """Number of joint values of the topic and all numbers: 4 * 2^C."""
    _check(clauses)
    return len(TOPICS) * len(NUMBERS) ** clauses


def entropy_nats(clauses: int) -> float:
    """Entropy of a sequence in nats; every valid sequence has log-probability minus this."""
    lexemes = clauses * sum(math.log(slot.lexemes) for slot in SLOTS)
    return lexemes + math.log(configurations(clauses))


def total_correlation(clauses: int) -> float:
    """Total correlation of a sequence in nats: the sum over f of ``(a_f - 1) log K_f``."""
    _check(clauses)
    topic = (topic_carriers(clauses) - 1) * math.log(len(TOPICS))
    return topic + clauses * (NUMBER_CARRIERS - 1) * math.log(len(NUMBERS))


def nelbo_optimum(clauses: int) -> float:
    """Least NELBO per token, H / L in nats, of MDLM's loss and of a mixture's marginal NELBO."""
    return entropy_nats(clauses) / (clauses * CLAUSE_LENGTH)


def clean_posterior_optimum(clauses: int, components: int) -> float:
    r"""Best clean-posterior loss per token for a mixture of M components, in nats.

    The loss is the mixture's negative log-likelihood of all masked words at once, at masking
    probability :math:`\tau \sim U[0, 1]` with weight :math:`1 / \tau`, divided by L. It equals
    H / L for M = 1 and lies *below* H / L for M > 1, so it is no bound on the NLL there: never
    turn it into a perplexity.

    With :math:`u = \tau^3` the chance that one number is hidden and :math:`u^C` that of the topic,
    all integrals are sums of Beta functions.

    Args:
        clauses: clauses a sequence C.
        components: M, a power of two; bits beyond ``2 + C`` are of no use.

    Returns:
        The loss of the allocation that the module describes.
    """
    bits = component_bits(components)
    on_topic = min(bits, TOPIC_BITS)
    carriers_topic = topic_carriers(clauses)
    topic_gain = on_topic * (carriers_topic - 1) / carriers_topic
    number_bits = (
        _hidden_numbers(clauses, bits, topic_hidden=False)
        - _hidden_numbers(clauses, bits, topic_hidden=True)
        + _hidden_numbers(clauses, bits - on_topic, topic_hidden=True)
    )
    gain = topic_gain + (NUMBER_CARRIERS - 1) * number_bits
    return nelbo_optimum(clauses) - LOG2 * gain / (clauses * CLAUSE_LENGTH)


def few_step_validity(
    steps: Steps, clauses: int, components: int = 1, adaptive: bool = False
) -> float:
    """Share of valid sequences from a perfect sampler with M components.

    Args:
        steps: number of equal steps J, or a grid of times from 0 to 1.
        clauses: clauses a sequence C.
        components: M, a power of two.
        adaptive: False: a component stands for the same feature values in every state (the topic's
            two bits first, then numbers in the order of the clauses). True: at every step the bits
            are dealt again to whatever is still hidden, as in :func:`clean_posterior_optimum`; a
            sampler that redraws the component, or whose components change their meaning with the
            state, reaches this. Both agree at J = 1.

    Returns:
        The probability. Components of unequal weight may exceed it at the price of diversity.
    """
    _check(clauses)
    bits = component_bits(components)
    if adaptive:
        return _adaptive_validity(step_times(steps), clauses, bits)
    on_topic = min(bits, TOPIC_BITS)
    decided = min(bits - on_topic, clauses)
    topic = agreement_probability(topic_carriers(clauses), 2 ** (TOPIC_BITS - on_topic), steps)
    number = agreement_probability(NUMBER_CARRIERS, len(NUMBERS), steps)
    return topic * number ** (clauses - decided)


def component_bits(components: int) -> int:
    """Return b of M = 2^b.

    Raises:
        UserError: if M is not a power of two.
    """
    if components < 1 or components & (components - 1):
        raise UserError(
            f"AgreeText's optimum is known for 1, 2, 4, 8, ... components, not for {components}."
        )
    return components.bit_length() - 1


def _check(clauses: int) -> None:
    if clauses < 1:
        raise UserError(f"AgreeText needs clauses >= 1, not {clauses}.")


def _hidden_numbers(clauses: int, bits: int, topic_hidden: bool) -> float:
    """Integral of min(bits, #hidden numbers) d tau / tau, times P(topic hidden) if asked.

    ``min(b, H) = sum_{j <= b} [H >= j]`` and, with u = tau^3 and ``H ~ Bin(C, u)``, the integral of
    ``P(H = h) u^e du / (3 u)`` is ``C(C, h) Beta(h + e, C - h + 1) / 3`` for e = 0 or e = C.
    """
    extra = clauses if topic_hidden else 0
    total = 0.0
    for h in range(1, clauses + 1):
        # Beta(p, q) = 1 / ((p + q - 1) comb(p + q - 2, q - 1))
        inverse_beta = (clauses + extra) * math.comb(clauses + extra - 1, clauses - h)
        total += min(bits, h) * math.comb(clauses, h) / inverse_beta / NUMBER_CARRIERS
    return total


def _adaptive_validity(times: list[float], clauses: int, bits: int) -> float:
    """Follow the chance that all is well, by #hidden numbers and whether the topic is hidden."""
    topic_size, size = topic_carriers(clauses), NUMBER_CARRIERS
    on_topic = min(bits, TOPIC_BITS)
    hidden = {True: np.zeros(clauses + 1), False: np.zeros(clauses + 1)}
    hidden[True][clauses] = 1.0
    for start, end in zip(times, times[1:], strict=False):
        p = (end - start) / (1.0 - start)
        stay_topic = (1.0 - p) ** topic_size
        open_topics = 2.0 ** (TOPIC_BITS - on_topic)
        show_topic = open_topics * power_gap(1.0 - p, p / open_topics, topic_size)
        stay = (1.0 - p) ** size
        lucky = len(NUMBERS) * power_gap(1.0 - p, p / len(NUMBERS), size)
        after = {True: np.zeros(clauses + 1), False: np.zeros(clauses + 1)}
        for topic_hidden, chance in hidden.items():
            left = bits - on_topic if topic_hidden else bits
            for h, weight in enumerate(chance):
                decided = min(left, h)
                row = np.ones(1)  # row[k]: chance that k numbers stay hidden and the others agree
                for number in range(h):
                    agree = 1.0 - stay if number < decided else lucky
                    row = np.convolve(row, [agree, stay])
                if topic_hidden:
                    after[True][: h + 1] += weight * stay_topic * row
                    after[False][: h + 1] += weight * show_topic * row
                else:
                    after[False][: h + 1] += weight * row
        hidden = after
    return float(hidden[False][0])
