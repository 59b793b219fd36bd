"""``python -m lkf_plugin.harness``: for torchrun, which starts modules and files."""

import sys

from lkf_plugin.harness.command import main

sys.exit(main())
