"""The page in a real browser: no error, and the buttons appear where scripts run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lkf_plugin.report.html import write_html
from tests.report.test_html import runs

__all__ = ["runs"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]


def browse(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """(the document after its scripts, what was logged)."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
        "--enable-logging=stderr", "--dump-dom", *options, page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(profile)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    return done.stdout, done.stderr


def test_it_renders_without_an_error(runs: Path, tmp_path: Path) -> None:
    page = write_html(runs, tmp_path / "page.html")
    document, log = browse(page, tmp_path / "with")
    assert "CONSOLE" not in log
    assert document.count("data-copy=") > 4 and 'hidden=""' not in document
    text = page.read_text(encoding="utf-8")
    bare = tmp_path / "bare.html"
    bare.write_text(text[: text.index("<script>")] + text[text.index("</script>") + 9 :])
    without, log = browse(bare, tmp_path / "without")
    assert "CONSOLE" not in log and 'hidden=""' in without
    for part in ("<table", "<svg", "<polyline", "<details", "<code id="):
        assert without.count(part) == document.count(part) >= 2
