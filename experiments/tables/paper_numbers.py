"""Every number of the paper's decoding tables, by table, corpus and row.

Unit: generative perplexity under GPT-2-large of 512 samples of 128 tokens, and the unigram entropy
H of the same samples, in nats. The paper compares within a table only: its three harnesses differ
by a few percent. Its H column mixes definitions (a sequence's entropy cannot exceed ln 128 = 4.85).
"""

from __future__ import annotations

J_GRID = (1, 2, 4, 8, 16, 32)
LM1B, WIKITEXT = "lm1b", "wikitext103"

# corpus -> row -> gen-PPL over J_GRID; None where the paper has no number
MAIN: dict[str, dict[str, tuple[float | None, ...]]] = {
    LM1B: {
        "MDLM": (1082, 1231, 926, 614, 410, 304),
        "MDLM, best-of-8": (1992, 1401, 770, 428, 281, 199),
        "SEDD": (3235, 3253, 1117, 485, 303, 225),
        "SDTT teacher (7 rounds)": (1645, 1122, 612, 359, 243, 194),
        "Di4C, best r4": (1375, 899, 453, 236, 156, 115),
        "ReDi, best rect3": (141, 133, 121, 124, 119, 117),
        "AR (128 calls)": (None, None, None, None, None, 135),
        "LKF M=1, best-of-8": (2024, 1308, 706, 400, 262, 183),
        "LKF M=1": (2398, 1619, 913, 573, 429, 321),
        "LKF M=4": (2169, 1649, 820, 407, 226, 166),
        "LKF M=8": (1827, 1515, 625, 284, 169, 105),
    },
    WIKITEXT: {
        "MDLM": (7801, 4344, 1523, 613, 343, 228),
        "SEDD": (4003, 4052, 1382, 638, 362, 247),
        "LKF M=1": (6198, 3308, 1336, 558, 316, 223),
        "LKF M=4": (5187, 2475, 849, 312, 164, 102),
        "LKF M=8": (4403, 2195, 673, 241, 119, 75),
    },
}

# corpus -> row -> (ELBO-PPL, H at J = 32, I(k))
MAIN_REST: dict[str, dict[str, tuple[float | None, float | None, float | None]]] = {
    LM1B: {
        "MDLM": (33.96, 4.0, None),
        "MDLM, best-of-8": (None, 5.13, None),
        "SEDD": (42.37, 4.41, None),
        "SDTT teacher (7 rounds)": (None, 4.08, None),
        "Di4C, best r4": (None, 3.99, None),
        "ReDi, best rect3": (None, 3.22, None),
        "AR (128 calls)": (27.61, 4.34, None),
        "LKF M=1, best-of-8": (None, 5.12, 0.00),
        "LKF M=1": (34.22, 5.22, 0.00),
        "LKF M=4": (35.52, 5.09, 0.86),
        "LKF M=8": (34.62, 4.93, 1.48),
    },
    WIKITEXT: {
        "MDLM": (28.47, 4.33, None),
        "SEDD": (29.16, 4.36, None),
        "LKF M=1": (27.89, 5.33, 0.00),
        "LKF M=4": (29.79, 5.28, 0.87),
        "LKF M=8": (28.56, 5.25, 1.41),
    },
}

# row -> M -> (gen-PPL, H) at J = 32
DECODE: dict[str, dict[int, tuple[float, float]]] = {
    "M components, independent noise | NELBO": {4: (157, 5.06), 8: (106, 4.96)},
    "M components, shared noise | NELBO": {4: (189, 5.11), 8: (131, 4.98)},
    "M components, shared noise | evidence": {4: (184, 5.10), 8: (125, 4.96)},
    "one component, M noise streams | NELBO": {4: (186, 5.04), 8: (163, 4.96)},
    "M components, independent noise | random pick": {4: (313, 5.26), 8: (327, 5.29)},
    "M components, halving | evidence": {4: (204, 5.12), 8: (145, 5.00)},
    "one component (commit-M) | none": {4: (316, 5.25), 8: (315, 5.20)},
}

# row -> (gen-PPL, H) over J_GRID
BEST_OF_N: dict[str, tuple[tuple[float, float], ...]] = {
    "MDLM, one chain": (
        (2402, 5.19), (1863, 5.33), (1134, 5.32), (687, 5.29), (467, 5.28), (363, 5.26),
    ),
    "LKF M=1, one chain": (
        (2520, 5.18), (1627, 5.25), (946, 5.25), (581, 5.25), (421, 5.24), (327, 5.25),
    ),
    "LKF M=8, one component": (
        (2106, 5.20), (2327, 5.45), (1474, 5.43), (774, 5.37), (488, 5.31), (345, 5.28),
    ),
    "MDLM, 8 noise draws": (
        (1992, 5.06), (1401, 5.19), (770, 5.18), (428, 5.17), (281, 5.16), (199, 5.13),
    ),
    "LKF M=1, 8 noise draws": (
        (2024, 5.04), (1308, 5.12), (706, 5.14), (400, 5.15), (262, 5.15), (183, 5.12),
    ),
    "LKF M=8, 8 components": (
        (1791, 5.09), (1535, 5.28), (609, 5.21), (292, 5.13), (157, 5.04), (106, 4.96),
    ),
}  # fmt: skip
ADVANTAGE = (0.10, -0.17, 0.14, 0.27, 0.40, 0.42)

# corpus -> row -> gen-PPL over J_GRID
COMMIT_M: dict[str, dict[str, tuple[float, ...]]] = {
    LM1B: {
        "M=1, one chain": (2398, 1619, 913, 573, 429, 321),
        "commit-M, M=4": (2349, 2116, 1292, 712, 444, 316),
        "commit-M, M=8": (2209, 2438, 1510, 754, 442, 315),
        "best-of-4": (2169, 1649, 820, 407, 226, 166),
        "best-of-8": (1827, 1515, 625, 284, 169, 105),
    },
    WIKITEXT: {
        "M=1, one chain": (6198, 3308, 1336, 558, 316, 223),
        "commit-M, M=4": (5990, 3110, 1147, 472, 253, 169),
        "commit-M, M=8": (5769, 2986, 1075, 420, 233, 160),
        "best-of-4": (5187, 2475, 849, 312, 164, 102),
        "best-of-8": (4403, 2195, 673, 241, 119, 75),
    },
}
COMMIT_M_H32: dict[str, dict[str, float]] = {
    LM1B: {
        "M=1, one chain": 5.22,
        "commit-M, M=4": 5.25,
        "commit-M, M=8": 5.20,
        "best-of-4": 5.09,
        "best-of-8": 4.93,
    },
    WIKITEXT: {
        "M=1, one chain": 5.33,
        "commit-M, M=4": 5.34,
        "commit-M, M=8": 5.35,
        "best-of-4": 5.28,
        "best-of-8": 5.25,
    },
}

DEFERRED_J = (0, 1, 2, 4, 8, 16, 32)
DEFERRED: dict[int, tuple[float, ...]] = {
    4: (380, 374, 360, 357, 380, 378, 386),
    8: (452, 414, 395, 416, 388, 407, 399),
}
DEFERRED_COMMIT = {4: 316.0, 8: 315.0}

# M -> row -> (gen-PPL, H) over J_GRID; None where the paper has no number
_Grid = tuple[tuple[float, float] | None, ...]
POLICY_NFE: dict[int, dict[str, _Grid]] = {
    4: {
        "commit-M": (
            (2349, 5.20), (2116, 5.21), (1292, 5.26), (712, 5.27), (444, 5.26), (316, 5.25),
        ),
        "random component": (
            (2404, 5.21), (2167, 5.23), (1329, 5.26), (749, 5.27), (446, 5.27), (315, 5.25),
        ),
        "halving, evidence": (
            None, None, (1131, 5.25), (488, 5.21), (262, 5.15), (175, 5.08),
        ),
        "best-of-M, NELBO": (
            (2197, 5.15), (1744, 5.20), (861, 5.23), (424, 5.20), (237, 5.14), (157, 5.06),
        ),
        "best-of-M, evidence": (
            (2071, 5.08), (1740, 5.12), (882, 5.20), (412, 5.17), (236, 5.13), (155, 5.05),
        ),
    },
    8: {
        "commit-M": (
            (2209, 5.21), (2438, 5.44), (1510, 5.43), (754, 5.37), (442, 5.32), (315, 5.28),
        ),
        "random component": (
            (2215, 5.21), (2402, 5.43), (1401, 5.41), (777, 5.36), (475, 5.32), (337, 5.29),
        ),
        "halving, evidence": (
            None, None, (1013, 5.32), (376, 5.19), (190, 5.10), (121, 4.98),
        ),
        "best-of-M, NELBO": (
            (1791, 5.09), (1535, 5.28), (609, 5.21), (292, 5.13), (157, 5.04), (106, 4.96),
        ),
        "best-of-M, evidence": (
            (1704, 5.03), (1443, 5.26), (576, 5.20), (276, 5.12), (155, 5.03), (102, 4.94),
        ),
    },
}  # fmt: skip

PROBE_J = (1, 2, 4, 8, 16, 32)
PROBE_AGREEMENT: dict[int, tuple[float, ...]] = {
    4: (0.27, 0.30, 0.36, 0.54, 0.68, 0.76),
    8: (0.17, 0.22, 0.30, 0.50, 0.65, 0.75),
}
PROBE_RHO = {8: (0.08, 0.06, 0.22, 0.44, 0.67, 0.88)}
PROBE_PPL: dict[int, tuple[float, ...]] = {
    4: (309, 299, 272, 222, 197, 184),
    8: (312, 273, 230, 164, 136, 125),
}

# over the components 0 .. 7, then the mixture
PER_COMPONENT: dict[str, tuple[float, ...]] = {
    "solo": (350, 296, 289, 391, 573, 143, 280, 462, 327),
    "reranked": (148, 143, 134, 184, 284, 47, 157, 207, 106),
    "reranked H": (5.03, 5.10, 5.00, 4.87, 5.16, 4.42, 4.91, 5.18, 4.96),
}
