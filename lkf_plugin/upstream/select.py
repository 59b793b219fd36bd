"""Which host a run takes."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from lkf_plugin.errors import UserError
from lkf_plugin.upstream.checkout import find_checkout, require_checkout

HOSTS = ("auto", "mdlm", "builtin")


def select_host(config: Any) -> str:
    """``mdlm`` or ``builtin``, told in one line.

    ``host=auto`` takes MDLM if $MDLM_HOME or external/mdlm holds a checkout.

    Raises:
        UserError: ``host=mdlm`` without a checkout, or an unknown host.
    """
    if config.host not in HOSTS:
        raise UserError(f"host={config.host} is unknown: take auto, mdlm or builtin.")
    if config.host == "builtin":
        _say("host: builtin")
        return "builtin"
    home = require_checkout() if config.host == "mdlm" else find_checkout()
    if home is None:
        _say("host: builtin (host=auto found no MDLM checkout in $MDLM_HOME or external/mdlm)")
        return "builtin"
    _say(f"host: mdlm ({home})")
    return "mdlm"


@rank_zero_only
def _say(line: str) -> None:
    print(line, flush=True)
