"""Where the YAML files lie."""

from __future__ import annotations

from pathlib import Path


def config_folder() -> Path:
    """The YAML files: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).resolve().parents[1] / "configs"
    return inside if inside.is_dir() else inside.parents[1] / "configs"
