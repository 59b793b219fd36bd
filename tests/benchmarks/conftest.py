"""The benchmarks are scripts in a folder of their own, which they import each other from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
