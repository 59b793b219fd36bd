"""The stand-ins: same arithmetic, honest refusals, and nothing left behind."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from types import SimpleNamespace

import pytest
import torch
import transformers.utils

from lkf_plugin.errors import UserError
from lkf_plugin.upstream import shims as mdlm_shims

PACKAGES = ("flash_attn", "timm", "causal_conv1d", "mamba_ssm", "requests")


@pytest.fixture
def clean_modules():
    """Put `sys.modules` back to what it was for the packages that may get a stand-in."""

    def ours() -> dict:
        return {n: m for n, m in sys.modules.items() if n.partition(".")[0] in PACKAGES}

    before = ours()
    yield
    for name in ours():
        del sys.modules[name]
    sys.modules.update(before)


def fake_package(folder, name: str, source: str, monkeypatch) -> None:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    for loaded in [n for n in sys.modules if n.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)


def test_rotary_turns_pairs_of_channels_and_leaves_values():
    length, half = 5, 3
    qkv = torch.randn(2, length, 3, 4, 2 * half, dtype=torch.float64)
    angle = torch.randn(length, half, dtype=torch.float64)

    out = mdlm_shims.apply_rotary_emb_qkv_(qkv, angle.cos(), angle.sin())

    pairs = torch.complex(qkv[..., :half], qkv[..., half:])
    turned = pairs * torch.polar(torch.ones_like(angle), angle)[:, None, None, :]
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    torch.testing.assert_close(out[:, :, :2], expected[:, :, :2])
    assert torch.equal(out[:, :, 2], qkv[:, :, 2])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_stays_inside_rows_and_equals_softmax(causal):
    rows, length, heads, width = 3, 6, 2, 4
    qkv = torch.randn(rows * length, 3, heads, width, dtype=torch.float64, requires_grad=True)
    bounds = torch.arange(0, (rows + 1) * length, length, dtype=torch.int32)

    out = mdlm_shims.flash_attn_varlen_qkvpacked_func(qkv, bounds, length, 0.0, causal=causal)

    for row in range(rows):
        q, k, v = qkv[row * length : (row + 1) * length].unbind(dim=1)
        scores = torch.einsum("ihc,jhc->hij", q, k) / width**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        expected = torch.einsum("hij,jhc->ihc", scores.softmax(-1), v)
        torch.testing.assert_close(out[row * length : (row + 1) * length], expected)
    assert out.shape == (rows * length, heads, width)
    out.sum().backward()
    assert qkv.grad is not None and qkv.grad.abs().sum() > 0


def test_rows_of_unequal_length_are_refused():
    with pytest.raises(AssertionError):
        mdlm_shims.flash_attn_varlen_qkvpacked_func(
            torch.zeros(7, 3, 1, 2), torch.tensor([0, 3, 7], dtype=torch.int32), 3
        )


def test_a_package_that_is_there_is_not_replaced(clean_modules, tmp_path, monkeypatch):
    for name in PACKAGES:
        fake_package(tmp_path, name, "REAL = True\n", monkeypatch)
    assert mdlm_shims.install(on_gpu=True) == []
    assert all(importlib.import_module(name).REAL for name in PACKAGES)


def test_flash_attn_is_replaced_on_a_cpu_even_if_installed(clean_modules, tmp_path, monkeypatch):
    fake_package(tmp_path, "flash_attn", "REAL = True\n", monkeypatch)
    assert "flash_attn" in mdlm_shims.install(on_gpu=False)
    rotary = importlib.import_module("flash_attn.layers.rotary")
    assert rotary.apply_rotary_emb_qkv_ is mdlm_shims.apply_rotary_emb_qkv_


def test_a_broken_build_counts_as_missing_and_is_named(
    clean_modules, tmp_path, monkeypatch, caplog
):
    fake_package(tmp_path, "mamba_ssm", "raise ImportError('undefined symbol')\n", monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert "mamba_ssm" in mdlm_shims.install(on_gpu=False)
    assert "undefined symbol" in caplog.text


def test_other_libraries_see_no_flash_attn(clean_modules):
    mdlm_shims.install(on_gpu=False)
    assert importlib.util.find_spec("flash_attn") is not None
    assert not transformers.utils.is_flash_attn_2_available()


def test_using_what_is_missing_says_what_to_install(clean_modules):
    for name in PACKAGES:
        sys.modules.pop(name, None)
    mdlm_shims._add_timm()
    mdlm_shims._add_causal_conv1d()
    mdlm_shims._add_mamba_ssm()
    mdlm_shims._add_requests()
    from causal_conv1d import causal_conv1d_fn
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    from requests import get
    from timm.scheduler import CosineLRScheduler

    with pytest.raises(UserError, match="pip install timm torchvision"):
        CosineLRScheduler(None, t_initial=3)
    for kernel in (causal_conv1d_fn, selective_scan_fn):
        with pytest.raises(UserError, match="backbone=dit"):
            kernel()
    with pytest.raises(UserError, match="pip install requests"):
        get("https://example.org")


def test_device_count_is_the_trainers_during_the_call_only():
    before = torch.cuda.device_count
    config = SimpleNamespace(trainer=SimpleNamespace(devices=3))
    seen = []

    def get_dataloaders(config, tokenizer, skip_train=False):
        seen.append((torch.cuda.device_count(), tokenizer, skip_train))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        mdlm_shims.with_device_count(get_dataloaders)(config, "tokenizer", skip_train=True)
    assert seen == [(3, "tokenizer", True)]
    assert torch.cuda.device_count is before


def test_no_judge_tokenizer_is_quiet_until_it_is_used():
    class Auto:
        @classmethod
        def from_pretrained(cls, name):
            return f"{cls.__name__} {name}"

    with mdlm_shims.no_judge_tokenizer(Auto):
        judge = Auto.from_pretrained("gpt2-large")
    assert judge.pad_token is not None
    with pytest.raises(UserError, match="compute_generative_perplexity"):
        judge(["text"])
    with pytest.raises(UserError, match="compute_generative_perplexity"):
        _ = judge.eos_token_id
    assert Auto.from_pretrained("x") == "Auto x"
