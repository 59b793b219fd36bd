"""Convert a checkpoint of MDLM's own trainer to one that loads without unpickling objects.

    python scripts/import_mdlm_checkpoint.py mdlm.ckpt imported.ckpt --trust-pickle

Reading a pickle file can run any code, hence the flag: give it for files from a trusted place only.
The MDLM checkout is not needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lkf_plugin.errors import UserError
from lkf_plugin.host.mdlm_import import import_checkpoint


def main(arguments: list[str] | None = None) -> int:
    """Run the conversion; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Convert a checkpoint of MDLM's own trainer to this plugin's layout."
    )
    parser.add_argument("source", type=Path, metavar="CKPT", help="what MDLM's trainer wrote")
    parser.add_argument("target", type=Path, metavar="OUT", help="the checkpoint to write")
    parser.add_argument(
        "--trust-pickle", action="store_true", help="allow reading CKPT, which is a pickle file"
    )
    options = parser.parse_args(arguments)
    try:
        overrides = import_checkpoint(options.source, options.target, options.trust_pickle)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {options.target}; its model is: {' '.join(overrides)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
