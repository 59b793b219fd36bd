"""Public checkpoints of MDLM, SEDD, DUO, SDTT, Di4C and ReDi into this plugin's layout, and back.

    python scripts/import_checkpoint.py mdlm.ckpt imported.ckpt --trust-pickle
    python scripts/import_checkpoint.py sedd.pth imported.ckpt --trust-pickle --tokenizer gpt2
    python scripts/import_checkpoint.py duo-folder imported.ckpt --method duo
    python scripts/import_checkpoint.py exported imported.ckpt   # of scripts/export_hub.py
    python scripts/import_checkpoint.py sdtt-folder imported.ckpt --tokenizer gpt2
    python scripts/import_checkpoint.py outputs/run/checkpoints/last.ckpt exported.pth --export sedd

Lightning `.ckpt` and SEDD's `.pth` are pickle files, and reading one can run any code, hence the
flag: give it for files from a trusted place only. Nobody's checkout is needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.exchange.export import LAYOUTS, export_checkpoint
from lkf_plugin.exchange.foreign import METHODS
from lkf_plugin.hub.bring_back import import_export, is_export


def main(arguments: list[str] | None = None) -> int:
    """Run the conversion; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help=".ckpt, .pth, .safetensors or a folder with one")
    parser.add_argument("target", type=Path, help="the checkpoint (or exported folder) to write")
    parser.add_argument("--trust-pickle", action="store_true", help="allow reading a pickle file")
    parser.add_argument("--method", choices=METHODS, help="where the file does not say")
    parser.add_argument("--tokenizer", help="its mask id and size are where the mask's row goes")
    parser.add_argument("--mask-index", type=int, help="the same, by number")
    parser.add_argument("--vocab-size", type=int, help="rows of ours, mask included")
    parser.add_argument("--source-mask", type=int, help="mask id of the checkpoint")
    parser.add_argument("--length", type=int, help="sequence length, where the file has none")
    parser.add_argument("--export", choices=LAYOUTS, help="write this layout instead")
    options = parser.parse_args(arguments)
    try:
        if options.export:
            export_checkpoint(options.source, options.target, options.export)
            print(f"wrote {options.target}")
            return 0
        if is_export(options.source):
            settings = import_export(options.source, options.target)
            print(f"wrote {options.target}; its model is: {' '.join(settings)}")
            return 0
        mask_index, vocab_size = options.mask_index, options.vocab_size
        card = None
        if options.tokenizer:
            from lkf_plugin.data import load_tokenizer, token_ids
            from lkf_plugin.runs.tokenizer import SUFFIX, keep_tokenizer, tokenizer_card

            tokenizer = load_tokenizer(options.tokenizer)
            ids, card = token_ids(tokenizer), tokenizer_card(tokenizer, options.tokenizer)
            mask_index, vocab_size = ids.mask, ids.vocab_size
        wanted = Wanted(
            options.method, mask_index, vocab_size, options.source_mask, options.length, card
        )
        settings = import_checkpoint(options.source, options.target, options.trust_pickle, wanted)
        if options.tokenizer:
            keep_tokenizer(tokenizer, options.target.with_suffix(SUFFIX))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {options.target}; its model is: {' '.join(settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
