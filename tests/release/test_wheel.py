"""What is released: the wheel's files, the sdist's, and a training with the wheel alone."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import lkf_plugin

pytest.importorskip("build", reason="pip install build")
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_library_and_its_settings(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (told,) = (name for name in names if name.endswith("METADATA"))
        metadata = archive.read(told).decode()
    for folder, place in (("lkf_plugin", "lkf_plugin"), ("configs", "lkf_plugin/configs")):
        ours = (".py", ".yaml", ".css", ".js")
        kept = [path for path in (ROOT / folder).rglob("*") if path.suffix in ours]
        wanted = {f"{place}/{path.relative_to(ROOT / folder).as_posix()}" for path in kept}
        assert wanted <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "lkf_plugin", f"lkf_plugin-{lkf_plugin.__version__}.dist-info"
    }  # fmt: skip
    assert f"\nVersion: {lkf_plugin.__version__}\n" in metadata


@pytest.mark.slow
def test_the_sdist_holds_what_a_wheel_is_built_of(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "configs/config.yaml"} <= names
    assert not [name for name in names if name.startswith(("external/", ".github/", "outputs/"))]


@pytest.mark.slow
def test_the_wheel_alone_trains_on_a_text_file(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an environment that has the wheel, and this one's dependencies but not its checkout."""
    main = runpy.run_path(str(ROOT / "scripts" / "try_wheel.py"))["main"]
    assert main([str(dist), "--borrow"]) == 0
    assert "trains, goes on, samples, evaluates and reports by itself" in capsys.readouterr().out


def test_a_folder_without_one_wheel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "scripts" / "try_wheel.py"))["main"]
    assert main([str(tmp_path)]) == 2
    assert "holds 0 wheels" in capsys.readouterr().err


def test_the_version_is_said_once() -> None:
    """pyproject.toml, the package and the changelog agree."""
    told = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert told is not None and told[1] == lkf_plugin.__version__
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
