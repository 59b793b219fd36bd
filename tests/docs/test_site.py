"""The documentation as a site: links are the site's, and it builds without a warning."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("mkdocs", reason="pip install 'lkf-plugin[docs]'")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import docs_hooks

    return docs_hooks


KNOWN = {"index.md", "text.md", "tables/README.md", "figures/a.png", "CHANGELOG.md"}


@pytest.mark.parametrize(
    "place, link, wanted",
    [
        ("README.md", "[a](docs/text.md#two)", "[a](text.md#two)"),
        ("README.md", "![a](docs/figures/a.png)", "![a](figures/a.png)"),
        ("README.md", "[a](CHANGELOG.md)", "[a](CHANGELOG.md)"),
        ("docs/text.md", "[a](../README.md#b)", "[a](index.md#b)"),
        ("docs/text.md", "[a](tables/README.md)", "[a](tables/README.md)"),
        ("docs/tables/README.md", "[a](../text.md)", "[a](../text.md)"),
        ("docs/text.md", "[f.py](../lkf_plugin/f.py)", "f.py"),
        ("docs/text.md", "[a](#b) [c](https://d.e)", "[a](#b) [c](https://d.e)"),
        ("docs/text.md", "`[a](../README.md)`", "`[a](../README.md)`"),
        ("docs/text.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_of_the_repository_are_links_of_the_site(
    hooks: ModuleType, place: str, link: str, wanted: str
) -> None:
    assert hooks.rewritten(link, place, KNOWN, "") == wanted


def test_source_files_are_shown_where_somebody_says_where(hooks: ModuleType) -> None:
    found = hooks.rewritten("[f](../lkf_plugin/f.py)", "docs/text.md", KNOWN, "https://x/y/")
    assert found == "[f](https://x/y/lkf_plugin/f.py)"


def test_a_notebook_is_a_page(hooks: ModuleType) -> None:
    text = hooks.page_of_notebook(ROOT / "docs" / "tutorial.ipynb")
    assert text.startswith("# Few-step generation") and "```python\nimport os" in text


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    pages |= {f"{p.stem}.md" for p in (ROOT / "docs").glob("*.ipynb")}
    assert {page for page in pages if not re.search(rf"[ ]{re.escape(page)}$", text, re.M)} == set()


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    assert "lkf_plugin.runs.load.load_run" in (site / "api" / "runs.html").read_text()
    assert (site / "figures" / "demo.png").is_file()
    outside = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:)?//")
    assert not outside.search((site / "index.html").read_text())  # nothing from a network


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, with fewer training steps: one latent is worth something in one step."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    pytest.importorskip("ipykernel")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    lkf = bin_folder / "lkf"
    lkf.write_text(
        f"#!{sys.executable}\nfrom lkf_plugin.commands.line import main\nmain()\n", "utf-8"
    )
    lkf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TUTORIAL_STEPS", "400")
    monkeypatch.setenv("LKF_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    check = "assert nll['M = 8', 1].value < nll['M = 1', 1].value - 0.1, nll"
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    notebook.cells.append(nbformat.v4.new_code_cell("assert nll['M = 1', 1].value > 0"))
    client(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
