"""README.md of an exported folder, made of the run's settings and of the figures that it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase

from lkf_plugin import __version__
from lkf_plugin.config.paths import NAMES_OR_FOLDERS, corpus_paths
from lkf_plugin.data.tokenizer import has_files
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.report.runs import Run, best_validation, nll, quality, read_runs
from lkf_plugin.report.tables import with_error
from lkf_plugin.runs.command_line import NOT_SAID, command_line_of
from lkf_plugin.runs.settings import flatten, plain

if TYPE_CHECKING:
    from lkf_plugin.hub.export import Export

FRONT = """---
library_name: transformers
tags:
- lkf
- masked-diffusion
- custom_code
---
"""
USE = """
## Use

`modeling_lkf.py` in this folder is all the code that is needed, beside `torch` and `transformers`;
flash-attn is not. FOLDER is this folder or its name on the hub (pin a `revision`).

```python
from transformers import AutoModel, AutoTokenizer

model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)
{tokenizer}
samples = model.sample(num_samples=4, num_steps=8, policy="{policy}", seed=1)
{decode}
```

`samples.component` is the component that each sample was drawn with. To fill gaps, give
`input_ids` with `model.config.mask_index` ({mask_index}) where to fill. `model(noisy_ids, sigma,
labels=ids).loss` and `model.training_loss(ids)` are for fine-tuning.
"""


def model_card(run: Path, export: Export, tokenizer: PreTrainedTokenizerBase) -> str:
    """The card: what was trained, what is measured, and the commands.

    Args:
        run: the run folder.
        export: what is exported.
        tokenizer: its tokenizer.
    """
    config, sizes = export.config, export.sizes
    (own, *_) = read_runs(run).runs
    columns, rows = _settings(export)
    files = has_files(tokenizer)
    use = USE.format(
        policy="best_of_m" if sizes["num_components"] > 1 else "commit",
        mask_index=sizes["mask_index"],
        tokenizer="tokenizer = AutoTokenizer.from_pretrained(FOLDER)"
        if files
        else f"# the tokenizer is {type(tokenizer).__name__} of lkf_plugin: it has no files here",
        decode="print(tokenizer.batch_decode(samples.input_ids, skip_special_tokens=True))"
        if files
        else "print(samples.input_ids)",
    )
    method = "MDLM" if sizes["network_type"] == "ddit" else "LKF"
    parts = [
        FRONT,
        f"# {method}, {config.data.train}",
        "",
        _what(sizes["num_components"]),
        "",
        "## Settings",
        "",
        markdown_table(columns, rows),
        "",
        "## Measured",
        "",
        *_figures(own, config),
        use,
        "## Commands",
        "",
        "Trained by (a path in capitals is the reader's own):",
        "",
        "```",
        _training(config),
        "```",
        "",
        "Brought back as a checkpoint to train on:",
        "",
        "```",
        "python scripts/import_checkpoint.py FOLDER imported.ckpt",
        "```",
        "",
        f"Exported by lkf {__version__}.",
        "",
    ]
    return "\n".join(parts)


def _what(components: int) -> str:
    if components == 1:
        return (
            "A masked diffusion language model: each step fills masked positions independently of "
            "one another."
        )
    return (
        f"A masked diffusion language model whose step is a mixture of {components} factorised "
        "components tied by one latent per sequence: log sum_k w_k prod_i P_i^k. With it, "
        "positions that are filled in one step agree."
    )


def _training(config: DictConfig) -> str:
    """The command that trains such a run, without a path of this machine."""
    settings = plain(config)
    known = (*corpus_paths(config.data.kind), *NAMES_OR_FOLDERS)
    places = [key for key in known if key not in NOT_SAID]
    paths = [key for key in places if key.startswith("data.") and _is_path(settings, key)]
    out = ("eval", "sampling", "decode", *paths)
    if settings.get("init", {}).get("from_checkpoint"):
        out, paths = (*out, "init"), [*paths, "init.from_checkpoint"]
    asked = [f"{key}={key.rpartition('.')[2].upper()}" for key in paths]
    return " ".join([str(command_line_of(settings, out)), *asked])


def _is_path(settings: dict[str, Any], key: str) -> bool:
    value = flatten(settings).get(key)
    return isinstance(value, str) and Path(value).is_absolute()


def _settings(export: Export) -> tuple[list[str], list[list[str]]]:
    config, sizes = export.config, export.sizes
    known = export.opened.card["tokenizer"]
    average = export.opened.checkpoint.get("ema")
    rows: list[tuple[str, Any]] = [
        ("method", export.opened.card["method"]["name"]),
        ("objective", config.loss.name),
        ("components M", sizes["num_components"]),
        ("latent structure", "one per sequence" if sizes["num_components"] > 1 else "none"),
        ("trunk", sizes["trunk"]),
        ("blocks, of which see the latent", f"{sizes['n_blocks']}, {sizes['latent_blocks']}"),
        ("width, heads", f"{sizes['hidden_size']}, {sizes['n_heads']}"),
        ("parameters", sum(tensor.numel() for tensor in export.raw.values())),
        ("length L", sizes["length"]),
        ("corpus", config.data.train),
        ("wrapped (documents packed)", bool(config.data.wrap)),
        (
            "tokenizer",
            f"{Path(str(known['name'])).name}, {known['vocab_size']} entries with the mask",
        ),
        ("trained steps", export.opened.step),
        ("batch", config.loader.global_batch_size),
        ("time conditioning", bool(config.time_conditioning)),
        ("training steps T of the process", config.T or "continuous"),
        ("noise", config.noise.type),
        ("precision of training", config.trainer.precision),
        ("seed", config.seed),
        (
            "weights in model.safetensors",
            "as trained"
            if average is None
            else f'averaged (EMA {average["decay"]:g}); as trained: variant="raw"',
        ),
    ]
    return ["setting", "value"], [[name, str(value)] for name, value in rows]


def _figures(run: Run, config: Any) -> list[str]:
    """Tables of what the run folder holds; a sentence where it holds nothing."""
    parts: list[str] = []
    best = best_validation(run)
    if best is not None:
        parts += [
            f"Lowest validation in training: val/nll {best[1]:.4f} nats per token at step "
            f"{best[0]}.",
            "",
        ]
    if run.likelihoods:
        rows = [
            [
                with_error(nll(one)),
                str(one.get("step")),
                str(one.get("ema")),
                str(one.get("precision")),
            ]
            for one in run.likelihoods
        ]
        columns = ["val/nll, nats per token (bound)", "step", "averaged weights", "precision"]
        parts += [markdown_table(columns, rows), ""]
    drawn = [one for one in run.samples if one.get("prompt") is None]
    if drawn:
        columns = ["policy", "J", "samples", "seed", "figures"]
        rows = [
            [
                str(one.get("policy")),
                str(one.get("sampling_steps")),
                str(one.get("num_samples")),
                str(one.get("seed")),
                ", ".join(
                    f"{name} {with_error(figure)}" for name, figure in sorted(quality(one).items())
                ),
            ]
            for one in drawn
        ]
        parts += [markdown_table(columns, rows), ""]
    return parts or ["Nothing was measured in the run folder when this was exported."]
