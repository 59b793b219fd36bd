"""Finding the MDLM checkout, recognising the pinned one, and keeping module names apart."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest

from lkf_plugin.errors import UserError
from lkf_plugin.upstream import checkout as mdlm_checkout


@pytest.fixture
def checkout(tmp_path):
    """A folder with the file names of MDLM, and none of its contents."""
    for name in mdlm_checkout.SOURCES:
        path = tmp_path / "mdlm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"NAME = {name!r}\n")
    return tmp_path / "mdlm"


def test_mdlm_home_comes_first(checkout, monkeypatch):
    monkeypatch.setenv("MDLM_HOME", str(checkout))
    assert mdlm_checkout.find_checkout() == checkout.resolve()


def test_mdlm_home_without_mdlm_is_a_mistake(tmp_path, monkeypatch):
    monkeypatch.setenv("MDLM_HOME", str(tmp_path))
    with pytest.raises(UserError, match="MDLM_HOME"):
        mdlm_checkout.find_checkout()


def test_no_checkout_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.delenv("MDLM_HOME", raising=False)
    monkeypatch.setattr(mdlm_checkout, "submodule_folder", lambda: tmp_path / "external" / "mdlm")
    assert mdlm_checkout.find_checkout() is None
    with pytest.raises(UserError, match="git submodule update --init external/mdlm"):
        mdlm_checkout.require_checkout()


def test_digest_sees_changes_but_not_our_inserted_line(checkout):
    before = mdlm_checkout.source_digest(checkout)
    main = checkout / "main.py"
    main.write_bytes(mdlm_checkout.INSERTED_LINE + main.read_bytes())
    assert mdlm_checkout.source_digest(checkout) == before
    (checkout / "models" / "ema.py").write_text("NAME = 'other'\n")
    assert mdlm_checkout.source_digest(checkout) != before


def test_another_commit_is_a_warning_only(checkout, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING):
        assert not mdlm_checkout.warn_unless_pinned(checkout)
    assert mdlm_checkout.PINNED_COMMIT[:10] in caplog.text and len(caplog.records) == 1
    monkeypatch.setattr(mdlm_checkout, "PINNED_DIGEST", mdlm_checkout.source_digest(checkout))
    caplog.clear()
    assert mdlm_checkout.warn_unless_pinned(checkout) and not caplog.records


def test_a_foreign_module_of_the_same_name_is_refused(checkout, monkeypatch):
    foreign = ModuleType("dataloader")
    foreign.__file__ = "/somewhere/else/dataloader.py"
    monkeypatch.setitem(sys.modules, "dataloader", foreign)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UserError, match="'dataloader' from /somewhere/else"):
        mdlm_checkout.load_upstream(checkout)
