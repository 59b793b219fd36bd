"""Damaged files of a run: what is a cache is rebuilt, the rest ends in one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint, require_training_state
from lkf_plugin.errors import UserError
from lkf_plugin.runs.identity import CARD
from lkf_plugin.runs.load import load_run
from lkf_plugin.runs.settings import load_record, load_settings
from lkf_plugin.train.csv_log import CsvLog
from tests.cli.conftest import TINY

Compose = Callable[..., DictConfig]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps in ``run``, its data in ``cache``."""
    from hydra import compose, initialize_config_dir

    from lkf_plugin.config import register_resolvers

    register_resolvers()
    place = tmp_path_factory.mktemp("damaged")
    where = (f"run_dir={place / 'run'}", f"data.cache_dir={place / 'cache'}")
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        cli.run(compose("config", overrides=[*TINY, *where, "trainer.max_steps=2"]))
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged, where the fixture ``tiny`` looks."""
    for name in ("run", "cache"):
        shutil.copytree(trained / name, tmp_path / name)
    return tmp_path


class Opaque:
    """An object that only a pickle can hold."""


def cut(keep: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


def put(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content)


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        checkpoint = torch.load(path, weights_only=True)
        other = change(checkpoint)
        path.unlink()
        torch.save(checkpoint if other is None else other, path)

    return apply


def flipped(path: Path) -> None:
    """The directory at a zip file's end, overwritten."""
    content = bytearray(path.read_bytes())
    content[-200:] = bytes(200)
    path.write_bytes(content)


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "empty": put(b""),
    "one byte": put(b"P"),
    "four bytes": put(b"PK\3\4"),
    "eight bytes": put(b"PK\3\4\0\0\0\0"),
    "text": put(b"not a checkpoint"),
    "html": put(b"<!DOCTYPE html><html>404</html>"),
    "json": put(b'{"state_dict": {}}'),
    "zeros": put(bytes(5000)),
    "half": cut(0.5),
    "nearly whole": cut(0.999),
    "a tenth": cut(0.1),
    "directory lost": flipped,
    "pickled number": put(pickle.dumps(7)),
    "pickled object": lambda path: torch.save({"state_dict": Opaque()}, path),
    "git lfs pointer": put(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    "a tensor": changed(lambda c: torch.ones(3)),
    "a list": changed(lambda c: [1, 2]),
    "no weights": changed(lambda c: {"global_step": 2}),
    "weights null": changed(lambda c: c.update(state_dict=None)),
    "weights empty": changed(lambda c: c.update(state_dict={})),
    "weights a list": changed(lambda c: c.update(state_dict=[torch.ones(1)])),
    "weights no tensors": changed(lambda c: c.update(state_dict={"backbone.a": 1})),
    "names no text": changed(lambda c: c.update(state_dict={1: torch.ones(1)})),
    "average a number": changed(lambda c: c.update(ema=3)),
    "average without shadows": changed(lambda c: c["ema"].pop("shadow_params") and None),
    "average without decay": changed(lambda c: c["ema"].pop("decay") and None),
    "average of no tensors": changed(lambda c: c["ema"].update(shadow_params=[1, 2])),
    "card a number": changed(lambda c: c.update({CARD: 7})),
    "card without format": changed(lambda c: c.update({CARD: {}})),
    "card of the future": changed(lambda c: c[CARD].update(format=99)),
    "card with another network": changed(lambda c: c[CARD]["network"].update(n_heads=8)),
    "weight missing": changed(lambda c: c["state_dict"].popitem() and None),
    "weight of another shape": changed(
        lambda c: c["state_dict"].update({"backbone.vocab_embed.embedding": torch.ones(2, 2)})
    ),
    "average of another network": changed(lambda c: c["ema"]["shadow_params"].reverse()),
    "average cut": changed(lambda c: c["ema"]["shadow_params"].pop() is None or None),
}


def one_sentence(error: BaseException) -> None:
    text = str(error)
    assert text and "\n" not in text and "Traceback" not in text and len(text) < 700


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_damaged_checkpoint(tiny: Compose, run: Any, place: Path, case: str) -> None:
    path = place / "run" / "checkpoints" / "last.ckpt"
    CHECKPOINTS[case](path)
    before = path.read_bytes()
    with pytest.raises(UserError) as caught:
        load_run(place / "run", checkpoint=str(path))
    one_sentence(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("case", ["four bytes", "half", "weights empty", "card a number"])
def test_a_damaged_checkpoint_ends_every_mode(
    tiny: Compose, run: Any, place: Path, case: str
) -> None:
    path = place / "run" / "checkpoints" / "last.ckpt"
    (place / "run" / "checkpoints" / "best.ckpt").unlink()
    CHECKPOINTS[case](path)
    before = {p.name: p.read_bytes() for p in (place / "run").iterdir() if p.is_file()}
    for mode in ("train", "ppl_eval", "sample_eval"):
        with pytest.raises(UserError) as caught:
            run(tiny(f"mode={mode}", "trainer.max_steps=3"))
        one_sentence(caught.value)
    after = {p.name: p.read_bytes() for p in (place / "run").iterdir() if p.is_file()}
    assert after == before


STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no loops": lambda c: c.pop("loops"),
    "no optimizer": lambda c: c.pop("optimizer_states"),
    "no schedule": lambda c: c.pop("lr_schedulers"),
    "no step": lambda c: c.pop("global_step"),
    "step a text": lambda c: c.update(global_step="2"),
    "step negative": lambda c: c.update(global_step=-1),
}


@pytest.mark.parametrize("case", STATES)
def test_a_checkpoint_that_cannot_be_gone_on_from(trained: Path, case: str) -> None:
    checkpoint = read_checkpoint(trained / "run" / "checkpoints" / "last.ckpt")
    require_training_state(checkpoint, "p")
    STATES[case](checkpoint)
    with pytest.raises(UserError, match="weights but no training state|is damaged"):
        require_training_state(checkpoint, "p")


SETTINGS: dict[str, bytes] = {
    "empty": b"",
    "null": b"null\n",
    "a number": b"7\n",
    "a list": b"- 1\n",
    "text": b"words and words\n",
    "half a mapping": b"mode: train\nmodel: {name: ti",
    "tab": b"mode:\ttrain\n\tmodel: 1\n",
    "not utf-8": b"mode: \xff\xfe\n",
    "zeros": bytes(100),
    "without a model": b"mode: train\n",
    "model a text": b"model: tiny\n",
    "python object": b"model: !!python/object/apply:os.system ['true']\n",
    "deep": b"[" * 3000,
}


@pytest.mark.parametrize("case", SETTINGS)
def test_damaged_settings(tiny: Compose, run: Any, place: Path, case: str) -> None:
    path = place / "run" / "config.yaml"
    path.write_bytes(SETTINGS[case])
    for use in (load_settings, load_run):
        with pytest.raises(UserError, match="config.yaml is damaged") as caught:
            use(place / "run")
        one_sentence(caught.value)
    if case in ("empty", "half a mapping"):
        with pytest.raises(UserError, match="config.yaml is damaged"):
            run(tiny("trainer.max_steps=3"))


@pytest.mark.parametrize(
    "value", ["${oc.env:HOME}", "a ${seed} b", ["x", "${cwd:}"], {"a": {"b": "${cwd:}"}}]
)
def test_interpolations_in_saved_settings_are_refused(place: Path, value: Any) -> None:
    path = place / "run" / "config.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["run_dir"] = value
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(UserError, match=r"a run folder's settings hold values only"):
        load_run(place / "run")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b"\xff", b"7", b'{"data_digest": ', b"[" * 3000]
)
def test_a_damaged_record_is_rebuilt(tiny: Compose, run: Any, place: Path, content: bytes) -> None:
    path = place / "run" / "run.json"
    before = json.loads(path.read_text())
    path.write_bytes(content)
    assert load_record(place / "run") == {}
    if content in (b"", b'{"data_digest": '):
        # the checkpoint knows the data, so other data is refused all the same
        with pytest.raises(UserError, match="data is not what it was|was .* when the run"):
            run(tiny("trainer.max_steps=3", "data.train_seed=5"))
        run(tiny("trainer.max_steps=3"))
        assert json.loads(path.read_text()) == before


@pytest.mark.parametrize("damage", [b"3,0.", b"3,0.5\n", b"\0\0\0\0\n", b"x,y\n", b"3"])
def test_a_log_with_half_a_row_goes_on(tiny: Compose, run: Any, place: Path, damage: bytes) -> None:
    path = place / "run" / "metrics.csv"
    whole = path.read_bytes()
    path.write_bytes(whole + damage)
    run(tiny("trainer.max_steps=3"))
    rows = path.read_bytes().splitlines()
    assert rows[:-1] == whole.splitlines() and rows[-1].startswith(b"3,")


@pytest.mark.parametrize("content", [b"", b"\n", b"words", b"a,b\n1,2\n", b"\xff\n", bytes(50)])
def test_a_log_that_is_none_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    log = CsvLog(str(tmp_path))
    log.rewind(5)
    log.log_metrics({"loss": 1.5}, 5)
    assert path.read_text() == "step,loss\n6,1.5\n"
