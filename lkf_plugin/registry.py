"""Things that a configuration names: one registry per kind, filled by the files themselves.

A file registers what it holds::

    @POLICIES.add("commit")
    def commit(request, settings): ...

All files of the registry's folder are imported when a name is first asked for, so that nothing is
listed twice. A name with a dot, ``my_module.my_name``, imports ``my_module`` from anywhere on the
path first and takes what it registered as ``my_name``: a plugin's file needs no change here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from lkf_plugin.errors import UserError

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries of one kind by name.

    Args:
        kind: what an entry is, in words (``decoding policy``).
        package: dotted name of the folder whose files are looked through.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, Entry] = {}
        self._complete = False

    def add(self, name: str) -> Callable[[Entry], Entry]:
        """Decorator that registers what it is put on."""

        def register(entry: Entry) -> Entry:
            known = self._entries.setdefault(name, entry)
            if known is not entry and _origin(known) != _origin(entry):
                raise ValueError(f"two entries are called {name}: {known!r} and {entry!r}")
            self._entries[name] = entry
            return entry

        return register

    def __getitem__(self, name: str) -> Entry:
        """The entry of a name.

        Raises:
            UserError: there is none, or the module that it names cannot be imported.
        """
        module, dot, short = str(name).rpartition(".")
        if dot:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(
                    f"{self.kind} {name}: {module} cannot be imported ({error}); put its folder on "
                    "PYTHONPATH."
                ) from error
        self._look_through()
        if short not in self._entries:
            raise UserError(
                f"{self.kind} {name} is unknown: take one of {', '.join(self)}, or module.name of "
                "your own."
            )
        return self._entries[short]

    def __contains__(self, name: object) -> bool:
        """Whether ``name`` is registered, without importing anything of a dotted name."""
        self._look_through()
        return str(name).rpartition(".")[2] in self._entries

    def __iter__(self) -> Iterator[str]:
        """All names, in alphabetical order."""
        self._look_through()
        return iter(sorted(self._entries))

    def _look_through(self) -> None:
        if self._complete:
            return
        self._complete = True
        folder = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(folder.__path__):
            importlib.import_module(f"{self.package}.{module.name}")


def _origin(entry: object) -> tuple[str, str]:
    """Module and name: equal for an entry and its reloaded self."""
    kind = entry if hasattr(entry, "__qualname__") else type(entry)
    return str(getattr(kind, "__module__", "")), str(getattr(kind, "__qualname__", ""))
