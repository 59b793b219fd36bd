"""A run as a folder for the Hugging Face hub, which loads without this package.

    python scripts/export_hub.py outputs/run exported
    python scripts/export_hub.py outputs/run exported --push name/model
    python scripts/import_checkpoint.py exported imported.ckpt   # the way back

Nothing is uploaded without ``--push``.
"""

from __future__ import annotations

import sys

from lkf_plugin.hub.command import main

if __name__ == "__main__":
    sys.exit(main())
