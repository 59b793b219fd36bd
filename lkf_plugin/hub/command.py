"""The command line of ``scripts/export_hub.py``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from lkf_plugin.failures import print_lines
from lkf_plugin.hub.export import export_run, push


def main(arguments: Sequence[str] | None = None) -> int:
    """Exports a run, and uploads it if asked; a mistake is told in one sentence with status 2."""
    parser = argparse.ArgumentParser(
        prog="export", description="Writes a trained run as a folder for the Hugging Face hub."
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("out", type=Path, help="folder to write, empty or not there")
    parser.add_argument("--checkpoint", help="a checkpoint of it (default: best, else last)")
    parser.add_argument("--push", metavar="REPO", help="upload it there, too (name/model)")
    args = parser.parse_args(arguments)

    def work() -> Iterator[str]:
        yield f"wrote {export_run(args.run, args.out, args.checkpoint)}"
        if args.push:
            yield f"uploaded to {push(args.out, args.push)}"

    return print_lines(work)
