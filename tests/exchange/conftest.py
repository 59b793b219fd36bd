"""Modules of the baselines, which the imported weights are for."""

from tests.methods.conftest import config_of, module_of

__all__ = ["config_of", "module_of"]
