"""mode=ppl_eval: likelihood of the held-out data, on the built-in host."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from lkf_plugin.config.limits import check_validation_share
from lkf_plugin.evaluate.validation import write_likelihood
from lkf_plugin.runs.common import build_module, build_trainer, load_weights
from lkf_plugin.runs.evaluated import open_checkpoint, prepare_in_its_tokenizer, say_loaded
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.datamodule import TokenBatches
from lkf_plugin.train.sequence_errors import SequenceErrors


def ppl_eval(config: DictConfig) -> dict[str, Any]:
    """Validates a checkpoint on the built-in host; see ``write_likelihood``.

    Returns:
        The contents of ``ppl_eval.json``.
    """
    opened = open_checkpoint(config)
    prepared = prepare_in_its_tokenizer(config, opened)
    check_validation_share(config, len(prepared.valid or ()))
    module = build_module(config, prepared.tokenizer)
    step = load_weights(module, opened.path, opened.checkpoint)["step"]
    if config.eval.disable_ema:
        module.ema = None
    say_loaded(opened, module, config)
    trainer = build_trainer(config, logger=False, callbacks=[SequenceErrors()])
    trainer.validate(module, datamodule=TokenBatches(prepared, config), verbose=False)
    return write_likelihood(LoadedRun(config, module, prepared, opened.path, step), trainer)
