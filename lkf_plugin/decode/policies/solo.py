"""solo: what one component says on its own, once or reranked (paper, Tab. percomp)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.best_of_n import best_of_n
from lkf_plugin.decode.policies.commit import commit
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.errors import UserError


def solo(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """Component ``component``, a number: J calls, or the best of ``num_candidates`` above one.

    A dead component is let speak: to hear it is what this policy is for.

    Raises:
        UserError: no component is named.
    """
    options = DecodeOptions.read(settings)
    if not isinstance(options.component, int):
        raise UserError(f"decode.component={options.component}: decode=solo needs a number.")
    policy = commit if options.num_candidates == 1 else best_of_n
    return policy(request, settings)
