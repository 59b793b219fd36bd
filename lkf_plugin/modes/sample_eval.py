"""mode=sample_eval: samples from a checkpoint, on either host."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, open_dict

from lkf_plugin.data import PreparedData
from lkf_plugin.data.corpus import CORPORA
from lkf_plugin.data.prompt import frame_of, prompt_ids
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import HOST_SAMPLER
from lkf_plugin.decode.sample import uses_own_sampler
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.quality import Quality, TextQuality, quality_for
from lkf_plugin.evaluate.run_records import RunRecords
from lkf_plugin.evaluate.validation import RECORDS, provenance
from lkf_plugin.judge.judge import Judge, JudgeScore, decode_samples
from lkf_plugin.methods.method import method_of
from lkf_plugin.processes import Processes
from lkf_plugin.progress import bar
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.evaluation_name import evaluation_name
from lkf_plugin.runs.common import (
    autocast,
    build_module,
    choose_device,
    load_weights,
    use_cpus,
)
from lkf_plugin.runs.evaluated import (
    OpenCheckpoint,
    open_checkpoint,
    prepare_in_its_tokenizer,
    say_loaded,
)
from lkf_plugin.runs.load import LoadedRun, use_average
from lkf_plugin.runs.processes import join
from lkf_plugin.runs.settings import flatten, plain, write_or_keep
from lkf_plugin.train.checkpoint import share_file
from lkf_plugin.train.seeding import seed_position


def sample_eval(config: DictConfig, host: str) -> dict[str, Any]:
    """Draws samples; writes them and their figures into the run folder's ``samples``.

    The names there say what distinguishes them (``evaluation_name``); ``samples.jsonl`` and
    ``sample_eval.json`` in the run folder are the newest. Samples of whole texts also leave a
    record, one file per policy and J, for the tables. If they cannot be written after all, they
    are kept in the system's folder for temporary files. Started in
    several processes (``torchrun``), each draws and judges its share; the first one writes.

    Returns:
        The contents of ``sample_eval.json``.
    """
    with join() as processes:
        return _sample_eval(config, host, processes)


def _sample_eval(config: DictConfig, host: str, processes: Processes) -> dict[str, Any]:
    opened = open_checkpoint(config)
    prepared, path = prepare_in_its_tokenizer(config, opened), opened.path
    use_cpus(config)
    device = processes.device(choose_device(config))
    run = _load(config, host, prepared, opened)
    module = run.module
    use_average(module)
    module.to(device)
    if config.sampling.prompt is not None:
        if not hasattr(module, "prompt_ids"):
            raise UserError("MDLM's own module takes no sampling.prompt: set host=builtin.")
        module.prompt_ids = read_prompt(config, prepared)
    quality, judge = _judges(config, prepared, device)
    source = provenance(config, prepared, module, path, run.step)
    semi_ar = config.sampling.semi_ar
    policy = HOST_SAMPLER if semi_ar else module.sampler_of(config.decode.policy)
    samples, decoded = _draw(run, device, processes)
    folder = Path(config.run_dir)
    steps = config.sampling.steps if method_of(config).uses_steps else None
    name = evaluation_name(flatten(plain(config)), source["checkpoint_sha256"], policy, steps=steps)
    rows = [dataclasses.asdict(sample) for sample in samples]
    target = folder / "samples" / f"{name}.jsonl"
    if processes.first:  # before the judge, which may fail
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_or_keep(target, lines)
        share_file(target, folder / "samples.jsonl")
        for row in rows[: config.sampling.num_sample_log]:
            print(f"--- {row['text']}")
    score = _score(config, judge, [sample.text for sample in samples], processes)
    if not processes.first:
        return {}
    if score is not None:
        print(f"{score.metric} {score.ppl:.4f} over {score.tokens} tokens")
    estimates = _measure(quality, samples, score)
    report: dict[str, Any] = {
        "metrics": _judged(judge, score),
        "diversity": {name: dataclasses.asdict(one) for name, one in sorted(estimates.items())},
        **source,
        "num_samples": len(rows),
        "sampling_steps": config.sampling.steps,
        "predictor": config.sampling.predictor,
        "eps": config.sampling.eps,
        "noise_removal": config.sampling.noise_removal,
        "policy": policy,
        "decode": dict(config.decode),
        "prompt": config.sampling.prompt,
    }
    if decoded is not None:
        report |= {"steps_calls": decoded.steps_calls, "network_calls": decoded.network_calls}
    figures = target.with_suffix(".json")
    write_or_keep(figures, json.dumps(report, indent=2) + "\n")
    share_file(figures, folder / "sample_eval.json")
    print(f"{len(rows)} samples written to {target} (the newest: {folder / 'samples.jsonl'})")
    if not estimates or decoded is None or config.sampling.prompt is not None:
        print("no record for the tables: they hold samples of L tokens without a prompt")
        return report
    records = RunRecords(run, folder / RECORDS, config.seed, report["host"])
    cell = records.samples(
        config.decode,
        config.sampling.steps,
        len(rows),
        str(config.trainer.precision),
        quality.judged_by,
        quality.self_bleu_subset,
    )
    written = records.write(cell, estimates, decoded)
    print(f"record: {records.folder / written.file_name}")
    return report


def _load(
    config: DictConfig, host: str, prepared: PreparedData, opened: OpenCheckpoint
) -> LoadedRun:
    """The module with the checkpoint's weights, and the checkpoint's step."""
    if host == "mdlm":
        from lkf_plugin.upstream.run import load_model

        with open_dict(config):
            config.eval.checkpoint_path = str(opened.path)
        module = load_model(config, prepared)
        say_loaded(opened, module, config)
        return LoadedRun(config, module, prepared, opened.path, opened.step)
    module = build_module(config, prepared.tokenizer)
    step = load_weights(module, opened.path, opened.checkpoint)["step"]
    if config.eval.disable_ema:
        module.ema = None
    say_loaded(opened, module, config)
    return LoadedRun(config, module, prepared, opened.path, step)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        text: without special tokens.
        ids: of its tokens; semi-AR gives texts only.
        component: that it was drawn with; None where there is one, or several took part.
        blocks: component and text of each block, where blocks have latents that were held.
    """

    text: str
    ids: list[int] | None
    component: int | None = None
    blocks: list[tuple[int, str]] | None = None


def _draw(
    run: LoadedRun, device: torch.device, processes: Processes
) -> tuple[list[Sample], Decoded | None]:
    """Samples of all processes, and how they came about (None for semi-AR)."""
    config, module, tokenizer = run.config, run.module, run.prepared.tokenizer
    sampling, batch = config.sampling, config.loader.eval_batch_size
    if sampling.semi_ar:
        return _draw_semi_ar(config, module, device), None
    count = sampling.num_sample_batches * batch
    with autocast(config, device):
        decoded = run.sample(
            config.decode, sampling.steps, count, config.seed, batch, "sampling", processes
        )
    texts = decode_samples(tokenizer, decoded.x_GL)
    ids_G = decoded.x_GL.tolist()
    component_G: list[int | None] = decoded.component_G.tolist()
    if not uses_components(config, module):
        component_G = [None] * len(texts)
    blocks_G: list[Any] = _blocks(module, tokenizer, decoded) or [None] * len(texts)
    drawn = zip(texts, ids_G, component_G, blocks_G, strict=True)
    return [Sample(*one) for one in drawn], decoded


def _blocks(module: Any, tokenizer: Any, decoded: Decoded) -> list[list[tuple[int, str]]] | None:
    """Component and text of each sample's blocks."""
    if decoded.block_GB is None:
        return None
    group_L = module.backbone.structure.blocks.group_of(decoded.x_GL.shape[1])
    parts = [decode_samples(tokenizer, decoded.x_GL[:, group_L == b]) for b in group_L.unique()]
    return [
        list(zip(components, texts, strict=True))
        for components, texts in zip(
            decoded.block_GB.tolist(), zip(*parts, strict=True), strict=True
        )
    ]


def uses_components(config: DictConfig, module: Any) -> bool:
    """Whether each sample is drawn with one component of several."""
    return config.model.get("num_components", 1) > 1 and not uses_own_sampler(module, config.decode)


def _draw_semi_ar(config: DictConfig, module: Any, device: torch.device) -> list[Sample]:
    """MDLM's strides; they depend on the batch size, and leave no record."""
    sampling, samples = config.sampling, []
    for i in bar(range(sampling.num_sample_batches), "sampling", "batch"):
        seed_position(config.seed, "sample", i, 0)
        with autocast(config, device):
            _, texts, _ = module.restore_model_and_semi_ar_sample(
                sampling.stride_length, sampling.num_strides, dt=1 / sampling.steps
            )
        samples += [Sample(text, None) for text in texts[-1]]
    return samples


def _judges(
    config: DictConfig, prepared: PreparedData, device: torch.device
) -> tuple[Quality, Judge | None]:
    """What measures the samples for a record, and the judge if one is asked for.

    A judge may hear a corpus with a grammar, too, but its records go by the grammar.
    """
    evaluation = config.eval
    asked = evaluation.compute_generative_perplexity
    name = evaluation.gen_ppl_eval_model_name_or_path if asked else None
    by_grammar = CORPORA[config.data.kind].rule is not None
    quality = quality_for(
        config,
        prepared.tokenizer,
        None if by_grammar else name,
        str(device),
        self_bleu_subset=0,
        batch_size=evaluation.perplexity_batch_size,
    )
    return quality, Judge(name, device=device) if name and by_grammar else quality.judge


def _score(
    config: DictConfig, judge: Judge | None, texts: list[str], processes: Processes
) -> JudgeScore | None:
    if judge is None:
        return None
    return judge.score(
        texts, config.model.length, config.eval.perplexity_batch_size, processes=processes
    )


def _judged(judge: Judge | None, score: JudgeScore | None) -> dict[str, Any]:
    if judge is None or score is None:
        return {}
    return {
        "gen_ppl": score.ppl,
        "gen_ppl_se": score.se,
        "gen_ppl_tokens": score.tokens,
        "judge": judge.label,
        "judge_revision": judge.revision,
        "judge_dtype": score.dtype,
    }


def _measure(
    quality: Quality, samples: list[Sample], score: JudgeScore | None
) -> dict[str, Estimate]:
    """What ``scripts/evaluate.py`` puts beside every quality figure, self-BLEU left out.

    Semi-autoregressive texts come without ids, and only equal lengths are counted together.
    """
    ids = [sample.ids for sample in samples if sample.ids is not None]
    if len(ids) < len(samples):
        return {}
    if isinstance(quality, TextQuality):
        return quality.measure_texts(ids, [sample.text for sample in samples], score)
    return quality.measure(torch.tensor(ids))


def read_prompt(config: DictConfig, prepared: PreparedData) -> torch.Tensor:
    """Ids [L] of ``sampling.prompt``, framed as the run's training sequences are.

    Raises:
        UserError: see ``prompt_ids``.
    """
    given, frame = str(config.sampling.prompt), frame_of(prepared, config.data)
    return prompt_ids(given, prepared.tokenizer, config.model.length, *frame)
