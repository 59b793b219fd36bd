"""mode=sample_eval: samples from a checkpoint, on either host."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from tqdm import tqdm

from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.decode.registry import HOST_SAMPLER, POLICIES
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.quality import Quality, TextQuality, quality_for
from lkf_plugin.evaluate.run_records import (
    OWN,
    STEPLESS,
    RunRecords,
    method_of,
    precision_name,
)
from lkf_plugin.judge.judge import Judge, JudgeScore, decode_samples
from lkf_plugin.modes.ppl_eval import RECORDS, provenance
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import ResultRecord
from lkf_plugin.runs.common import (
    autocast,
    build_module,
    choose_device,
    find_checkpoint,
    load_weights,
    use_cpus,
)
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import write_atomically
from lkf_plugin.train.seeding import seed_position

GAP = "[MASK]"


def sample_eval(config: DictConfig, host: str) -> dict[str, Any]:
    """Draws samples; writes ``samples.jsonl`` and ``sample_eval.json`` into the run folder.

    Samples of whole texts also leave a record, one file a policy and J, for the tables.

    Returns:
        The contents of ``sample_eval.json``.
    """
    prepared = prepare(config, splits=("valid",))
    path = find_checkpoint(config)
    use_cpus(config)
    device = choose_device(config)
    run = _load(config, host, prepared, path)
    module = run.module
    module.to(device)
    if config.sampling.prompt is not None:
        if not hasattr(module, "prompt_ids"):
            raise UserError("MDLM's own module takes no sampling.prompt: set host=builtin.")
        module.prompt_ids = read_prompt(config, prepared)
    samples, calls = _draw(config, module, device, prepared.tokenizer)
    folder = Path(config.run_dir)
    rows = [dataclasses.asdict(sample) for sample in samples]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(folder / "samples.jsonl", lines)
    for row in rows[: config.sampling.num_sample_log]:
        print(f"--- {row['text']}")
    quality, judge = _judges(config, prepared, device)
    score = _score(config, judge, [sample.text for sample in samples])
    found = _measure(quality, samples, score)
    report: dict[str, Any] = {
        "metrics": _judged(judge, score),
        "diversity": {name: dataclasses.asdict(one) for name, one in sorted(found.items())},
        **provenance(config, prepared, module, path, run.step),
        "num_samples": len(rows),
        "sampling_steps": config.sampling.steps,
        "predictor": config.sampling.predictor,
        "eps": config.sampling.eps,
        "noise_removal": config.sampling.noise_removal,
        "policy": getattr(module, "policy", HOST_SAMPLER),
        "decode": dict(config.decode),
        "prompt": config.sampling.prompt,
        **calls,
    }
    write_atomically(folder / "sample_eval.json", json.dumps(report, indent=2) + "\n")
    print(f"{len(rows)} samples written to {folder / 'samples.jsonl'}")
    if not found or config.sampling.prompt is not None:
        print("no record for the tables: they hold samples of L tokens without a prompt")
        return report
    records = RunRecords(run, folder / RECORDS, config.seed, report["host"])
    written = _write_record(records, found, quality.judge, report)
    print(f"record: {records.folder / written.cell}.json")
    return report


def _load(config: DictConfig, host: str, prepared: PreparedData, path: Path) -> LoadedRun:
    """The module with the checkpoint's weights, and the checkpoint's step."""
    if host == "mdlm":
        from lkf_plugin.upstream.run import load_model

        with open_dict(config):
            config.eval.checkpoint_path = str(path)
        step = read_checkpoint(path).get("global_step")
        return LoadedRun(config, load_model(config), prepared, path, step)
    module = build_module(config, prepared.tokenizer)
    step = load_weights(module, path)["step"]
    if config.eval.disable_ema:
        module.ema = None
    return LoadedRun(config, module, prepared, path, step)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample: its text without special tokens, and its ids (semi-AR gives texts only)."""

    text: str
    ids: list[int] | None


def _draw(
    config: DictConfig, module: Any, device: torch.device, tokenizer: Any
) -> tuple[list[Sample], dict[str, float]]:
    """Samples, and the network calls a sample where the decoding policy counts them."""
    sampling = config.sampling
    samples: list[Sample] = []
    counts: list[tuple[float, float]] = []
    for i in tqdm(range(sampling.num_sample_batches), desc="sampling", unit="batch"):
        seed_position(config.seed, "sample", i, 0)
        with autocast(config, device):
            if sampling.semi_ar:
                _, texts, _ = module.restore_model_and_semi_ar_sample(
                    sampling.stride_length, sampling.num_strides, dt=1 / sampling.steps
                )
                samples += [Sample(text, None) for text in texts[-1]]
                continue
            ids_GL = module.restore_model_and_sample(num_steps=sampling.steps, eps=sampling.eps)
        texts = decode_samples(tokenizer, ids_GL)
        samples += [Sample(t, ids) for t, ids in zip(texts, ids_GL.tolist(), strict=True)]
        decoded = getattr(module, "last_decoded", None)
        if decoded is not None:
            counts.append((decoded.steps_calls, decoded.network_calls))
    if not counts:
        return samples, {}
    stated, run = (sum(column) / len(counts) for column in zip(*counts, strict=True))
    return samples, {"steps_calls": stated, "network_calls": run}


def _judges(
    config: DictConfig, prepared: PreparedData, device: torch.device
) -> tuple[Quality, Judge | None]:
    """What measures the samples for a record, and the judge if one is asked for.

    A judge may hear AgreeText, too, but its records go by the grammar.
    """
    evaluation = config.eval
    asked = evaluation.compute_generative_perplexity
    name = evaluation.gen_ppl_eval_model_name_or_path if asked else None
    by_grammar = config.data.kind == "agreetext"
    quality = quality_for(
        config,
        prepared.tokenizer,
        None if by_grammar else name,
        str(device),
        self_bleu_subset=0,
        batch_size=evaluation.perplexity_batch_size,
    )
    return quality, Judge(name, device=device) if name and by_grammar else quality.judge


def _score(config: DictConfig, judge: Judge | None, texts: list[str]) -> JudgeScore | None:
    if judge is None:
        return None
    score = judge.score(
        texts, max_length=config.model.length, batch_size=config.eval.perplexity_batch_size
    )
    print(f"{score.metric} {score.ppl:.4f} over {score.tokens} tokens")
    return score


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


def _write_record(
    records: RunRecords, found: dict[str, Estimate], judge: Judge | None, report: dict[str, Any]
) -> ResultRecord:
    """The record of the samples: by the method's own sampler, or by a policy of ``decode``."""
    config, policy = records.run.config, report["policy"]
    method = method_of(config)
    decode = {**config.decode, "policy": policy}
    own = policy not in POLICIES
    if own:
        row = OWN if method else row_name(decode)
        more = {key: config.sampling[key] for key in ("predictor", "eps", "noise_removal")}
    else:
        row, more = row_name(decode), {"eps": config.sampling.eps}
    exact = bool(OmegaConf.select(config, "baseline.float64_draws")) if method else not own
    steps = None if method in STEPLESS else config.sampling.steps
    return records.write(
        row,
        found,
        samples=report["num_samples"],
        precision=precision_name(report["precision"], "float64" if exact else "float32"),
        steps=steps,
        policy=policy,
        decode=None if own else decode,
        # a host that counts no calls makes one a step
        calls=report.get("steps_calls", steps),
        judge=judge,
        more={"mode": "sample_eval", "network_calls": report.get("network_calls"), **more},
    )


def read_prompt(config: DictConfig, prepared: PreparedData) -> torch.Tensor:
    """Ids [L] of ``sampling.prompt``, a text or the path of a text file; gaps are masks.

    Each ``[MASK]`` stands for one token. What the prompt leaves of the length is masked, too.

    Raises:
        UserError: it is longer than the model's length, or has tokens only.
    """
    given = str(config.sampling.prompt)
    text = Path(given).read_text(encoding="utf-8") if os.path.isfile(given) else given
    ids: list[int] = []
    for i, piece in enumerate(text.strip("\n").split(GAP)):
        if i:
            ids.append(prepared.mask_index)
        if piece.strip():
            ids += prepared.tokenizer.encode(piece, add_special_tokens=False)
    length = config.model.length
    if len(ids) > length:
        raise UserError(
            f"sampling.prompt has {len(ids)} tokens, more than model.length={length}: shorten it."
        )
    ids += [prepared.mask_index] * (length - len(ids))
    if prepared.mask_index not in ids:
        raise UserError(
            f"sampling.prompt leaves nothing to fill: put {GAP} where words are missing."
        )
    return torch.tensor(ids)
