from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import lkf_plugin
from lkf_plugin.errors import UserError
from lkf_plugin.records import provenance


def test_digest_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"abc")
    digest = provenance.checkpoint_digest(path)
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    os.utime(path, (1, 1))
    assert provenance.checkpoint_digest(path.rename(tmp_path / "b.ckpt")) == digest


def test_digest_of_a_folder_sees_names_and_contents_not_its_place(tmp_path: Path) -> None:
    def folder(name: str, files: dict[str, str]) -> str:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return provenance.checkpoint_digest(tmp_path / name)

    one = folder("one", {"a": "1", "sub/b": "2"})
    assert folder("two", {"sub/b": "2", "a": "1"}) == one
    assert folder("three", {"a": "1", "sub/c": "2"}) != one
    assert folder("four", {"a": "12", "sub/b": ""}) != one


def test_digest_of_nothing_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        provenance.checkpoint_digest(tmp_path / "absent")
    with pytest.raises(UserError, match="no checkpoint"):
        provenance.checkpoint_digest(tmp_path)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_code_version_knows_its_own_checkout_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lkf_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(lkf_plugin, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(lkf_plugin, "__version__", "9.9.9")

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(
            ["git", *identity, "-C", str(tmp_path), *arguments], check=True, capture_output=True
        )

    assert provenance.code_version() == "9.9.9"
    git("init", "-q")
    (tmp_path / "other").write_text("x")
    git("add", "other")
    git("commit", "-q", "-m", "another project")
    assert provenance.code_version() == "9.9.9"
    git("add", "lkf_plugin")
    git("commit", "-q", "-m", "package")
    assert re.fullmatch(r"9\.9\.9\+g[0-9a-f]{40}", provenance.code_version())
    (package / "__init__.py").write_text("changed = True\n")
    assert provenance.code_version().endswith(".dirty")


def test_machine_and_libraries_are_plain_values() -> None:
    versions = provenance.library_versions()
    assert versions["torch"] == torch.__version__ and "python" in versions
    machine = provenance.machine()
    assert machine["threads"] == torch.get_num_threads() and machine["cpu"]
    assert all(isinstance(one, str | int | type(None)) for one in machine.values())
