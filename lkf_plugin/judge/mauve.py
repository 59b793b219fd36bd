"""MAUVE between samples and held-out texts, by the package ``mauve-text`` (extra ``mauve``).

Higher is closer, at most 1. It depends on the features' model, on the number of texts and on their
length: compare only where all three agree. Source: Pillutla et al., NeurIPS 2021.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate

FEATURIZER = "gpt2-large"


def mauve_name(featurizer: str) -> str:
    """Name of the figure, with the model of the features: ``mauve[gpt2-large]``."""
    return f"mauve[{Path(featurizer).name.lower()}]"


def require_mauve() -> None:
    """Raises a UserError that names the extra if the package is missing."""
    if importlib.util.find_spec("mauve") is None:
        raise UserError("MAUVE needs mauve-text: pip install 'lkf-plugin[mauve]'.")


def mauve(
    texts: Sequence[str],
    held_out: Sequence[str],
    featurizer: str,
    length: int,
    seed: int,
    device: torch.device,
    batch_size: int = 8,
) -> Estimate:
    """MAUVE of texts against held-out ones.

    Texts without a character have no features and are left out; the estimate's ``n`` counts the
    samples that are left. The package gives no standard error.

    Args:
        texts: samples.
        held_out: real texts, as many.
        featurizer: name or folder of the model, one that the package takes (a GPT-2).
        length: tokens of the featurizer that a text is truncated to.
        seed: of the clustering.
        device: of the featurizer.
        batch_size: of the featurizer.

    Raises:
        UserError: no package, fewer than two texts, or a model that cannot be had.
    """
    require_mauve()
    from mauve import compute_mauve

    kept, real = ([text for text in side if text.strip()] for side in (texts, held_out))
    if min(len(kept), len(real)) < 2:
        raise UserError("MAUVE needs at least two samples and two held-out texts with words.")
    try:
        result = compute_mauve(
            p_text=real,
            q_text=kept,
            featurize_model_name=featurizer,
            max_text_length=length,
            device_id=-1 if device.type == "cpu" else device.index or 0,
            batch_size=batch_size,
            seed=seed,
            verbose=False,
        )
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"MAUVE cannot take features from {featurizer} ({first}): give the name or the folder "
            "of a GPT-2 after --mauve."
        ) from error
    return Estimate(float(result.mauve), None, len(kept))
