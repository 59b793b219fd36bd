"""What a host's module lacks of ``host.contract.HostDiffusion``."""

from __future__ import annotations

from lkf_plugin.host.contract import HostDiffusion
from lkf_plugin.objective.draws import HostOfDraws


def missing(module_class: type, module: object) -> set[str]:
    """Names that neither a module nor its class has; some of Lightning's need a trainer to read."""
    names = {
        name
        for protocol in (HostDiffusion, HostOfDraws)
        for name in (*vars(protocol), *protocol.__annotations__)
        if not name.startswith(("__", "_abc_", "_is_"))
    }
    own = {*dir(module_class), *vars(module), *vars(module).get("_modules", {})}
    return names - own
