"""Lets `python main.py model=lkf loss=mixture`, typed inside an MDLM checkout, run this plugin.

For a checkout whose main.py starts with `import lkf_plugin.inside_mdlm` (patches/README.md). When
that main.py is the script being run, importing this module runs our command line with host=mdlm and
that checkout, and ends the process. Imported from anywhere else it does nothing, so host=mdlm can
import the same main.py as a module.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def checkout_of_script() -> Path | None:
    """The MDLM checkout whose main.py is the script that this process runs, or None."""
    from lkf_plugin.upstream.checkout import is_checkout

    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        return None
    script = Path(file).resolve()
    return script.parent if script.name == "main.py" and is_checkout(script.parent) else None


def run_in(home: Path) -> None:
    """Run our command line inside the checkout `home`, with the arguments of this process."""
    from lkf_plugin.cli import main

    os.environ["MDLM_HOME"] = str(home)
    if not any(argument.startswith("host=") for argument in sys.argv[1:]):
        sys.argv.append("host=mdlm")
    main()
    sys.exit(0)


_home = checkout_of_script()
if _home is not None:
    run_in(_home)
