"""The configuration: a typed schema, rules between settings, resolvers and paths.

Defaults stand in ``configs/``; here stands what each setting may be.
"""

from __future__ import annotations

from lkf_plugin.config.paths import resolve_paths
from lkf_plugin.config.resolvers import (
    RESOLVERS,
    cpu_count,
    default_accelerator,
    default_precision,
    device_count,
    register_resolvers,
)
from lkf_plugin.config.schema import Settings
from lkf_plugin.config.validate import validate

__all__ = [
    "RESOLVERS",
    "Settings",
    "cpu_count",
    "default_accelerator",
    "default_precision",
    "device_count",
    "register_resolvers",
    "resolve_paths",
    "validate",
]
