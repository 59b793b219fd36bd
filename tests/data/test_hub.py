from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from omegaconf import DictConfig

from lkf_plugin.data import hub
from lkf_plugin.data.hub import HubCorpus, hub_reachable, is_commit, snapshot
from lkf_plugin.data.options import read_options
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def corpus(make_config: Make, **data: object) -> HubCorpus:
    return HubCorpus(read_options(make_config(kind="hub", **data))[0])


def write_parquet(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)


def test_parquet_of_a_subset(make_config: Make, tmp_path: Path) -> None:
    write_parquet(tmp_path / "big" / "train-00001-of-00002.parquet", ["c"])
    write_parquet(tmp_path / "big" / "train-00000-of-00002.parquet", ["a", "", "b"])
    write_parquet(tmp_path / "big" / "validation-00000-of-00001.parquet", ["v"])
    write_parquet(tmp_path / "small" / "train-00000-of-00001.parquet", ["no"])
    found = corpus(make_config, path=str(tmp_path), subset="big")
    assert list(found.documents("train")) == ["a", "", "b", "c"]
    assert list(found.documents("valid")) == ["v"]


def test_split_as_a_folder_and_jsonl(make_config: Make, tmp_path: Path) -> None:
    write_parquet(tmp_path / "plain_text" / "train" / "0000.parquet", ["a"])
    (tmp_path / "plain_text" / "test").mkdir()
    (tmp_path / "plain_text" / "test" / "0.jsonl").write_text(json.dumps({"text": "t"}) + "\n")
    found = corpus(make_config, path=str(tmp_path), valid_split="test")
    assert [*found.documents("train"), *found.documents("valid")] == ["a", "t"]


@pytest.mark.parametrize(("ends", "end"), [("keep", "\n"), ("strip", "")])
def test_wikitext_tokens(make_config: Make, tmp_path: Path, ends: str, end: str) -> None:
    (tmp_path / "wiki.valid.tokens").write_text(" \n = T = \n \n text \n")
    found = corpus(make_config, path=str(tmp_path), line_ends=ends)
    assert list(found.documents("valid")) == ["", f" = T = {end}", "", f" text {end}"]
    # An evaluation needs no training file; training does.
    assert found.fingerprint()["train"] is None
    with pytest.raises(UserError, match="no file of the split train"):
        list(found.documents("train"))


def test_missing_column(make_config: Make, tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", ["a"])
    found = corpus(make_config, path=str(tmp_path), field="body")
    with pytest.raises(UserError, match="no column body .*: text"):
        list(found.documents("train"))


def test_hub_needs_a_revision(make_config: Make) -> None:
    with pytest.raises(UserError, match="data.revision"):
        corpus(make_config, dataset="owner/name")


def test_pinned_commit_is_the_fingerprint(make_config: Make) -> None:
    found = corpus(make_config, dataset="owner/name", revision=COMMIT)
    assert found.fingerprint() == {"dataset": "owner/name", "commit": COMMIT}
    assert is_commit(COMMIT) and not is_commit("refs/convert/parquet")


def test_branch_is_resolved_and_files_come_from_the_snapshot(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / COMMIT
    write_parquet(folder / "plain_text" / "train" / "0000.parquet", ["a"])
    asked = []

    def fake(repo: str, repo_type: str, revision: str, patterns: list[str], remedy: str) -> Path:
        asked.append((repo, repo_type, revision, *patterns))
        return folder

    monkeypatch.setattr(hub, "snapshot", fake)
    found = corpus(make_config, dataset="o/n", revision="refs/x", subset="plain_text")
    assert found.fingerprint()["commit"] == COMMIT
    assert list(found.documents("train")) == ["a"]
    assert asked[1][:4] == ("o/n", "dataset", "refs/x", "plain_text/train*")


def test_unreachable_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub, "hub_reachable", lambda: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="cannot be had .* do this instead"):
        snapshot("no-such-owner/no-such-name", "dataset", COMMIT, ["*"], "do this instead.")


def test_reachability_is_asked_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not hub_reachable()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    assert hub_reachable()
