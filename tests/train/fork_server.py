"""Runs the command line many times without importing torch each time.

Reads one JSON object a line, ``{"args": [...], "out": path, "err": path}``, forks, runs
``lkf_plugin.cli.main`` in the child, and writes the child's exit status, negative for a signal.
"""

from __future__ import annotations

import json
import os
import sys

import lkf_plugin.cli
import lkf_plugin.methods.lkf
import lkf_plugin.modes.train  # noqa: F401


def child(args: list[str], out: str, err: str) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.argv = ["lkf", *args]
    status = 0
    try:
        lkf_plugin.cli.main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
