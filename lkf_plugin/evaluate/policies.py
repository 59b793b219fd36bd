"""A policy's settings from its file in ``configs/decode``."""

from __future__ import annotations

from typing import Any

import yaml

from lkf_plugin.config.folder import config_folder
from lkf_plugin.errors import UserError


def policy_settings(name: str, **changes: Any) -> dict[str, Any]:
    """``configs/decode/<name>.yaml`` with changes to keys that it has.

    Raises:
        UserError: no such policy, or it has no such setting.
    """
    path = config_folder() / "decode" / f"{name}.yaml"
    if name in ("auto", "mdlm") or not path.is_file():
        known = sorted(one.stem for one in path.parent.glob("*.yaml"))
        choices = ", ".join(one for one in known if one not in ("auto", "mdlm"))
        raise UserError(f"policy {name} is unknown: take one of {choices}.")
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in changes:
        if key not in settings:
            raise UserError(f"policy {name} has no {key}: it has {', '.join(settings)}.")
    return {**settings, **changes}
