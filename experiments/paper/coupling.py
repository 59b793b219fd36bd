"""How much dependence between words a noise leaves: conditional total correlation of a coupling.

DUO and ReDi make a text x_0 from a noise x_T. Of each of a few noises many texts are drawn, and
their total correlation is measured on AgreeText's features, where it is exact for the corpus
(``corpora.agreetext_ties``); beside it stands ReDi's own metric, which takes eight texts a noise
for all different and so cannot tell more than log 8 of their joint entropy.

Shape legend: S texts of one noise, L positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.agreetext_ties import chains
from lkf_plugin.corpora.plug_in import plug_in_entropy
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.identity import precision_of
from lkf_plugin.evaluate.run_records import Cell
from lkf_plugin.information.sample_tc import chain_total_correlation
from lkf_plugin.methods.duo_sampler import run_chain
from lkf_plugin.progress import bar
from lkf_plugin.records.estimate import Estimate, mean_and_error
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun

COUPLING = "coupling"  # kind of the record
MIN_TIME = 1e-5
NOISES, TEXTS, STEPS = 4, 256, 32  # of a measurement; steps of a chain
PEERS = 8  # texts a noise in ReDi's own metric


def feature_correlation(x_SL: Tensor) -> float:
    """Total correlation of the features that texts show, nats."""
    return sum(chain_total_correlation(chain_SF) for chain_SF in chains(x_SL))


def peers_correlation(x_SL: Tensor) -> float:
    """ReDi's metric of a group of texts, nats: the joint entropy is log S whatever they are.

    Source: ReDi_discrete, text code, total correlation of 8 samples a noise.
    """
    marginals = sum(plug_in_entropy(x_S) for x_S in x_SL.unbind(1))
    return marginals - math.log(len(x_SL))


@torch.no_grad()
def texts_of(run: LoadedRun, noise_L: Tensor, count: int, batch_size: int) -> Tensor:
    """``count`` texts that the run's model makes of one noise, [S, L]."""
    module, parts = run.module, []
    for first in range(0, count, batch_size):
        start = noise_L.expand(min(batch_size, count - first), -1).clone()
        parts.append(
            run_chain(
                module.forward, module.noise, start, STEPS, MIN_TIME,
                module.settings.last_pass, module.draw,
            )
        )  # fmt: skip
    return torch.cat(parts)


def coupling(evaluation: Evaluation) -> Record:
    """The coupling that an AgreeText run's model makes, measured once and kept."""
    run = evaluation.run
    length = int(run.config.model.length)
    settings: dict[str, Any] = {
        "length": length,
        "seed": evaluation.seed,
        "ema": run.module.ema is not None,
        "precision": precision_of("32-true", "float64"),
        "noises": NOISES,
        "texts": TEXTS,
        "chain": STEPS,
    }
    cell = Cell(COUPLING, COUPLING, settings)
    if kept := evaluation.kept(cell):
        return kept
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(evaluation.seed)
        noises = torch.randint(run.module.vocab_size, (NOISES, length))
        groups = [
            texts_of(run, noise_L, TEXTS, evaluation.batch_size)
            for noise_L in bar(noises, "coupling", "noise")
        ]
    each = [peers_correlation(one) for x_SL in groups for one in x_SL.split(PEERS)]
    clauses = length // agreetext.CLAUSE_LENGTH
    valid = torch.cat([agreetext.valid(x_SL) for x_SL in groups]).double()
    metrics = {
        "tc": mean_and_error([feature_correlation(x_SL) for x_SL in groups]),
        "tc_pooled": Estimate(feature_correlation(torch.cat(groups)), None, NOISES * TEXTS),
        "tc_corpus": Estimate(agreetext.total_correlation(clauses), 0.0),
        "tc_of_peers": mean_and_error(each),
        "coupled_valid": mean_and_error(valid.numpy()),
    }
    return evaluation.records.write(cell, metrics)
