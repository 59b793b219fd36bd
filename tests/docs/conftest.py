"""The command line's fixtures, for pages that show commands and runs."""

from __future__ import annotations

from tests.cli.conftest import compose, run, tiny

__all__ = ["compose", "run", "tiny"]
