"""``init.from_checkpoint``: whether a run may start from another's weights."""

from __future__ import annotations

import os

from omegaconf import DictConfig

from lkf_plugin.checkpoint_file import local_file, read_checkpoint
from lkf_plugin.data import PreparedData
from lkf_plugin.errors import UserError
from lkf_plugin.methods.settings import NONE, baseline_name
from lkf_plugin.runs.identity import card_of_settings, compare, read_card
from lkf_plugin.runs.settings import plain
from lkf_plugin.runs.tokenizer import tokenizer_card

# A mixture starts from a factorised network: its latent is new. T only weighs the objective.
_NEW_IN_A_MIXTURE = (
    "method.name",
    "network.type",
    "network.trunk",
    "network.num_components",
    "network.latent_blocks",
    "process.T",
)


def check_start(config: DictConfig, prepared: PreparedData) -> None:
    """Refuses weights of another network, process or tokenizer than the settings'.

    Raises:
        UserError: not there, damaged, or the first option that differs with both values; or nothing
            here starts from a checkpoint.
    """
    source = config.init.from_checkpoint
    if not source:
        return
    mixture = baseline_name(config) == NONE
    if mixture and config.model.type != "lkf":
        raise UserError(
            "init.from_checkpoint starts a mixture (model=lkf) or a baseline: leave it out, or "
            "choose one of these."
        )
    path = local_file(source, "init.from_checkpoint")
    card = read_card(read_checkpoint(path), path)
    name = str(config.data.tokenizer_name_or_path)
    now = card_of_settings(plain(config))
    now["tokenizer"] = tokenizer_card(prepared.tokenizer, name)
    unknown = compare(card or {}, now, path, _NEW_IN_A_MIXTURE if mixture else ("process.T",))
    if mixture and card:  # a factorised network has no options of a latent
        unknown = [key for key in unknown if not key.startswith("model.")]
    if unknown and os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"{path} does not tell its {', '.join(unknown)}: not compared", flush=True)
