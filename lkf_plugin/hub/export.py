"""A run as a folder that ``transformers`` loads without this package."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.tokenizer import has_files
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import check_weights
from lkf_plugin.exchange.foreign import PREFIX
from lkf_plugin.files import write_atomically
from lkf_plugin.hub.card import model_card
from lkf_plugin.hub.network import (
    average_by_name,
    empty_network,
    exported_names,
    network_sizes,
)
from lkf_plugin.runs.evaluated import OpenCheckpoint, open_checkpoint
from lkf_plugin.runs.identity import Card
from lkf_plugin.runs.load import settings_of_run
from lkf_plugin.runs.tokenizer import tokenizer_of

MODELLING = "modeling_lkf.py"
WEIGHTS, RAW = "model.safetensors", "model.raw.safetensors"  # the second is variant="raw"
OWN = "lkf_export"  # what config.json holds for the way back
EXPORTED = ("lkf", "mdlm")  # methods whose loss and sampler the modelling file has
# Options of the network that the modelling file knows; the last two no network reads.
KNOWN = (
    "type",
    "trunk",
    "hidden_size",
    "cond_dim",
    "n_blocks",
    "n_heads",
    "num_components",
    "latent_blocks",
    "tie_word_embeddings",
    "scale_by_sigma",
)


@dataclass(frozen=True)
class Export:
    """What is exported.

    Attributes:
        config: the run's settings.
        opened: its checkpoint.
        sizes: of the network and its process, as ``LKFConfig`` names them.
        raw: trained weights under the modelling file's names.
        averaged: the weight average under the same names, or None.
    """

    config: DictConfig
    opened: OpenCheckpoint
    sizes: dict[str, Any]
    raw: dict[str, Tensor]
    averaged: dict[str, Tensor] | None


def export_run(run: Path, out: Path, checkpoint: str | None = None) -> Path:
    """Writes a run's best (else last) checkpoint, or the one named, as a hub folder.

    Args:
        run: the run folder.
        out: a folder that is empty or not there; it appears whole or not at all.
        checkpoint: a file, in place of the run's best.

    Raises:
        UserError: no run, a method or network that the modelling file has not, a tokenizer that is
            not beside the checkpoint, or something in ``out``.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty: give another folder, or empty that one.")
    export = read_export(run, checkpoint)
    tokenizer = tokenizer_of(export.opened.path, export.opened.card)
    if tokenizer is None:
        raise UserError(
            f"{export.opened.path} has no tokenizer beside it: bring back the folder `tokenizer` "
            "of its run."
        )

    def write(target: Path) -> None:
        target.mkdir()
        files = {WEIGHTS: export.raw if export.averaged is None else export.averaged}
        if export.averaged is not None:
            files[RAW] = export.raw
        for name, tensors in files.items():
            whole = {key: tensor.contiguous() for key, tensor in tensors.items()}
            save_file(whole, target / name, metadata={"format": "pt"})
            (target / name).chmod(0o644)  # the library's own files are private
        if has_files(tokenizer):
            tokenizer.save_pretrained(target)
        source = Path(__file__).with_name(MODELLING)
        (target / MODELLING).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        settings = hub_config(export, tokenizer, file_digest(target / WEIGHTS))
        text = json.dumps(settings, indent=2, sort_keys=True)
        (target / "config.json").write_text(text + "\n", encoding="utf-8")
        (target / "README.md").write_text(model_card(run, export, tokenizer), encoding="utf-8")

    write_atomically(out, write)
    return out


def read_export(run: Path, checkpoint: str | None = None) -> Export:
    """Settings, sizes and weights of a run.

    Raises:
        UserError: see ``export_run``.
    """
    config = settings_of_run(run, checkpoint)
    opened = open_checkpoint(config)
    card = opened.card
    method = (card.get("method") or {}).get("name")
    if method not in EXPORTED:
        raise UserError(
            f"{run} was trained with method={method}, which the hub's modelling file has not: "
            "export an LKF or MDLM run, or take scripts/import_checkpoint.py --export."
        )
    for key, value in (card.get("network") or {}).items():
        of_blocks = str(key).startswith("block_")  # says nothing where there are none
        if key not in KNOWN and not of_blocks and value not in (None, False, "sequence"):
            raise UserError(
                f"{run} has model.{key}={value}, which the hub's modelling file has not: only one "
                "latent per sequence, in the whole block, is exported."
            )
    known = card.get("tokenizer") or {}
    if not known.get("digest"):
        raise UserError(
            f"{opened.path} does not tell its tokenizer: it is from before checkpoints did, so "
            "train one step more with this version."
        )
    model = config.model
    sizes = network_sizes(model)
    network = empty_network(sizes, known["vocab_size"], known["mask"])
    state = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in opened.checkpoint["state_dict"].items()
        if name.startswith(PREFIX)
    }
    check_weights(network, state, opened.path)
    average, averaged = opened.checkpoint.get("ema"), None
    if average is not None:
        shadows = average_by_name(network, average, opened.path)
        averaged = exported_names({**state, **shadows}, model.type)
    sizes |= {
        "vocab_size": known["vocab_size"],
        "mask_index": known["mask"],
        "time_conditioning": bool(config.time_conditioning),
        "sampling_eps": float(config.training.sampling_eps),
        "grid_eps": float(config.sampling.eps),
    }
    return Export(config, opened, sizes, exported_names(state, model.type), averaged)


def hub_config(
    export: Export, tokenizer: PreTrainedTokenizerBase, weights_digest: str
) -> dict[str, Any]:
    """``config.json``: what ``LKFConfig`` reads, and under ``lkf_export`` the way back."""
    average = export.opened.checkpoint.get("ema")
    kept = None
    if average is not None:
        kept = {"decay": float(average["decay"]), "num_updates": int(average["num_updates"])}
    module = MODELLING.removesuffix(".py")
    model = f"{module}.LKFModel"
    return {
        "architectures": ["LKFModel"],
        "model_type": "lkf",
        "auto_map": {
            "AutoConfig": f"{module}.LKFConfig",
            "AutoModel": model,
            "AutoModelForMaskedLM": model,
        },
        "dtype": "float32",
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **export.sizes,
        OWN: {
            "card": _public(export.opened.card),
            "step": export.opened.step,
            "T": int(export.config.T),
            "average": kept,
            "weights_sha256": weights_digest,
        },
    }


def _public(card: Card) -> Card:
    """The card without a path of this machine."""
    tokenizer = card["tokenizer"]
    return {**card, "tokenizer": {**tokenizer, "name": Path(str(tokenizer["name"])).name}}


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def push(folder: Path, repository: str) -> str:
    """Uploads an exported folder to the hub; returns its address.

    Raises:
        UserError: the hub refuses, is not reached, or knows no token.
    """
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    except Exception as error:  # the client raises its own, its transport's and the system's
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{folder} is written, but it could not be uploaded to {repository} ({first}): log in "
            "(`hf auth login`) and try again with `hf upload`."
        ) from error
    return f"https://huggingface.co/{repository}"
