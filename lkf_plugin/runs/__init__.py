"""A run folder: settings, identity, lock, resuming, and loading it again."""

from __future__ import annotations

from lkf_plugin.runs.load import LoadedRun, load_run

__all__ = ["LoadedRun", "load_run"]
