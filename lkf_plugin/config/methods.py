"""``method``: the settings of every method."""

from __future__ import annotations

from lkf_plugin.config.variants import Variants
from lkf_plugin.methods.method import METHODS, MethodSettings

METHOD_SETTINGS: Variants[MethodSettings] = Variants(METHODS, lambda method: method.settings, {})
