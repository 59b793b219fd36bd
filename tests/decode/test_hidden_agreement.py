"""What selection does to diversity, on hidden agreement with M = V = 16 at one step."""

from __future__ import annotations

import torch

from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.policies.calibrated import calibrated
from lkf_plugin.decode.policies.commit import commit
from tests.decode.table_model import agreement_request

CORPUS = HiddenAgreement(16, 8)
PURITY = torch.linspace(0.90, 0.99, 16)  # every component speaks well, and they are not equals


def test_argmin_collapses_and_softmax_does_not() -> None:
    request = agreement_request(PURITY, samples=80, steps=1)
    argmin = best_of_m(request, {"selector": "nelbo"}).x_GL
    softmax = best_of_m(request, {"selector": "softmax"}).x_GL
    random = best_of_m(request, {"selector": "random"}).x_GL
    assert CORPUS.in_support(random).double().mean() < 0.85
    for x_GL in (argmin, softmax):
        assert CORPUS.in_support(x_GL).double().mean() > 0.95
    assert CORPUS.value_entropy(softmax) > 2.0
    assert CORPUS.value_entropy(argmin) < 1.0


def test_a_component_killed_on_purpose_never_wins() -> None:
    """It repeats itself perfectly, so that its chains score best wherever they are let in."""
    purity, logw = PURITY.clone(), torch.zeros(16)
    purity[5], logw[5] = 0.999999, -9.0
    request = agreement_request(purity, samples=30, steps=1, logw_M=logw)
    for selector in ("evidence", "nelbo", "softmax"):
        assert (best_of_m(request, {"selector": selector, "score_draws": 2}).component_G != 5).all()
    let_in = best_of_m(request, {"selector": "evidence", "min_prior": 0.0})
    assert (let_in.component_G == 5).double().mean() > 0.9


def test_calibration_prefers_the_pure_and_says_more_valid_things_than_commit() -> None:
    purity = torch.linspace(0.6, 0.999, 16)
    request = agreement_request(purity, samples=400, steps=1)
    plain = CORPUS.in_support(commit(request, {}).x_GL).double().mean()
    settings = {"score": "nelbo", "select_temperature": 0.1}
    learned = CORPUS.in_support(calibrated(request, settings).x_GL).double().mean()
    assert learned > plain + 0.2
