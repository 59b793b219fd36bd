"""Tiny methods, as modules on hand and as configurations."""

from tests.methods.conftest import config_of, module_of

__all__ = ["config_of", "module_of"]
