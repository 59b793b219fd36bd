"""Groups whose settings depend on a name of their own: what each name may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lkf_plugin.registry import Registry
from lkf_plugin.settings.fields import Group

G = TypeVar("G", bound=Group)


@dataclass(frozen=True)
class Variants(Generic[G]):
    """Settings classes by name: those of a registry, and a few that stand for no entry of it.

    Attributes:
        registry: the entries.
        settings: the settings class of an entry.
        others: further names.
    """

    registry: Registry[Any]
    settings: Callable[[Any], type[G]]
    others: Mapping[str, type[G]]

    def of(self, name: str) -> type[G]:
        """The class of a name.

        Raises:
            UserError: nothing is called so.
        """
        if name in self.others:
            return self.others[name]
        return self.settings(self.registry[name])

    def names(self) -> tuple[str, ...]:
        """All names."""
        return (*self.others, *self.registry)
