"""``init.from_checkpoint=FOLDER``: a model folder from the hub, brought into our layout first."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.data import PreparedData, token_ids
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.convert import Wanted, import_checkpoint
from lkf_plugin.exchange.foreign import read_foreign
from lkf_plugin.hub.bring_back import import_export, is_export
from lkf_plugin.ranks import is_first
from lkf_plugin.runs.settings import plain

FILE = "start.ckpt"  # in the run folder
MASKED = ("mdlm", "sedd")  # whose networks have seen masks


def with_local_start(config: DictConfig, prepared: PreparedData, fresh: bool) -> DictConfig:
    """The settings with a checkpoint of ours in a folder's place.

    A run that goes on has its weights already: it starts from nothing else. Each process writes
    the same file, whole.

    Args:
        config: of the run; left as it is.
        prepared: its data, whose tokenizer says where the mask's row goes.
        fresh: whether the run begins.

    Raises:
        UserError: not a folder of MDLM's or SEDD's layout nor an export of ours, or of another
            vocabulary.
    """
    source = config.init.from_checkpoint
    if not source or not Path(source).is_dir():
        return config
    local = OmegaConf.create(plain(config))  # sizes that were read from the folder stay
    local.init.from_checkpoint = str(_brought(config, prepared)) if fresh else None
    return local


def _brought(config: DictConfig, prepared: PreparedData) -> Path:
    source, target = Path(config.init.from_checkpoint), Path(config.run_dir) / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    if is_export(source):
        import_export(source, target)
        return target
    foreign = read_foreign(source, trust_pickle=False)
    method = foreign.method or "mdlm"
    if method not in MASKED and config.model.type == "lkf":
        raise UserError(
            f"{source} is a {method} model, which has not learnt to fill masks: start a mixture "
            "from an MDLM or SEDD folder, an export of this package, or an M = 1 checkpoint."
        )
    ids = token_ids(prepared.tokenizer)
    # MDLM puts its mask where this tokenizer has it, by the same rule; SEDD appends one
    moves = foreign.mask_index is not None
    wanted = Wanted(method, ids.mask if moves else None, ids.vocab_size)
    rows = len(foreign.state["vocab_embed.embedding"])
    if not moves and rows != ids.vocab_size:
        raise UserError(
            f"{source} has {rows} tokens and the tokenizer "
            f"{config.data.tokenizer_name_or_path} {ids.vocab_size}, mask included: take the data "
            "with the tokenizer that the model was trained with (data.tokenizer_name_or_path)."
        )
    import_checkpoint(source, target, trust_pickle=False, wanted=wanted)
    if is_first():
        print(f"{source}: {method} weights, {rows} tokens, brought to {target}", flush=True)
    return target
