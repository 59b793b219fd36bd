"""Paths, run folders and arguments that cannot work: one sentence, the right status, no traces."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lkf_plugin.methods.lkf
import lkf_plugin.modes.train  # noqa: F401
from lkf_plugin.config import register_resolvers
from tests.cli.conftest import TINY
from tests.cli.test_main import call

Prepare = Callable[[Path], list[str]]
ARGUMENTS = [one for one in TINY if not one.startswith("data=")]
SMALL = [*ARGUMENTS, "data=agreetext"]
TEXT = [one for one in ARGUMENTS if not one.startswith("data.")]
TEXT += ["data=text", "model.length=8", "data.vocab_size=300"]
NOBODY = 65534


@contextlib.contextmanager
def ordinary_user(case: str) -> Iterator[None]:
    """Works as a user to whom something is forbidden, where the case is about that.

    To root nothing is. What a run imports must be there before: it may lie in root's home.
    """
    if os.geteuid() or not any(word in case for word in ("read-only", "unreadable", "entered")):
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder in which anybody may work."""
    made = Path(tempfile.mkdtemp(prefix="malformed-", dir="/tmp")).resolve()
    made.chmod(0o777)
    try:
        yield made
    finally:
        for path in made.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(made)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied and spoilt."""
    from hydra import compose, initialize_config_dir

    from lkf_plugin import cli

    register_resolvers()
    place = tmp_path_factory.mktemp("trained")
    overrides = [*SMALL, f"run_dir={place / 'run'}", f"data.cache_dir={place / 'cache'}"]
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        config = compose("config", overrides=overrides)
    cli.run(config)
    shutil.rmtree(place / "cache")
    return place / "run"


def tree(folder: Path) -> dict[str, int]:
    """Names and sizes of everything below, except in the data cache."""
    return {
        str(path.relative_to(folder)): path.lstat().st_size if path.is_file() else -1
        for path in folder.rglob("*")
        if "cache" not in path.relative_to(folder).parts
    }


def check(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    folder: Path,
    arguments: list[str],
    told: str,
) -> None:
    before = tree(folder)
    capfd.readouterr()
    status, _, err = call(monkeypatch, folder, capfd, *arguments)
    lines = [line for line in err.splitlines() if "it/s" not in line and "examples" not in line]
    sentences = [line for line in lines if line.strip()]
    assert status == 2, err
    assert "Traceback" not in err and len(sentences) == 1, err
    assert sentences[0].startswith("error: ") and told in sentences[0], sentences[0]
    assert tree(folder) == before


# --- arguments -----------------------------------------------------------------------------------

UNQUOTED = ["é.txt", "文.txt", "a=b.txt", "a(b).txt", "a#b.txt", "a&b.txt", "a~b.txt", "a!b", "a;b"]
UNQUOTED += ["a[1].txt", "{x}.txt", "it's.txt", 'say"so".txt', "😀.txt", "a\nb.txt", "a{b"]


@pytest.mark.parametrize("name", UNQUOTED)
def test_unquoted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    told = "has a line break" if "\n" in name else "quote it, "
    check(monkeypatch, capfd, folder, [*TEXT, f"data.path=/x/{name}"], told)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("data.path=a,b.txt", "add -m to run each, or if it is one value quote it, "),
        ("seed=1,2", "seed=1,2 is several values: add -m"),
        ("words", "words is no setting: write key=value"),
        ("==", "== cannot be read: write key=value"),
        ("=3", "takes one of its names"),
        ("optim.rate=3", "optim.rate is no setting"),
        ("model=enormous", "model=enormous is unknown: take "),
        ("run_dir=${nowhere}", "nowhere"),
        ("run_dir=${oc.env:NO_SUCH_NAME}", "NO_SUCH_NAME"),
        ("mode=dance", "mode=dance"),
        ("model=3", "takes one of its names"),
    ],
)
def test_arguments(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    folder: Path,
    argument: str,
    told: str,
) -> None:
    check(monkeypatch, capfd, folder, [*SMALL, argument], told)


# --- places that cannot be written or read --------------------------------------------------------


def _file_at(name: str, *arguments: str, mode: int = 0o644, text: str = "x" * 400) -> Prepare:
    def prepare(folder: Path) -> list[str]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return [one.format(folder) for one in arguments]

    return prepare


def _folder_at(name: str, *arguments: str, mode: int = 0o755) -> Prepare:
    def prepare(folder: Path) -> list[str]:
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)
        return [one.format(folder) for one in arguments]

    return prepare


def _link_at(name: str, to: str, *arguments: str) -> Prepare:
    def prepare(folder: Path) -> list[str]:
        (folder / name).symlink_to(to)
        return [one.format(folder) for one in arguments]

    return prepare


def _fifo_at(name: str, *arguments: str) -> Prepare:
    def prepare(folder: Path) -> list[str]:
        os.mkfifo(folder / name)
        return [one.format(folder) for one in arguments]

    return prepare


def _just(*arguments: str) -> Prepare:
    return lambda folder: [one.format(folder) for one in arguments]


RUN, SAVE = "run_dir={0}/run", "checkpointing.save_dir={0}/save"
START = "init.from_checkpoint={0}/start.ckpt"
SAMPLE, LIKELIHOOD = ("mode=sample_eval", RUN), ("mode=ppl_eval", RUN)
LKF = ("model=lkf-tiny", "loss=mixture", "model.length=32")
JUDGED = ("eval.generate_samples=true", "eval.compute_generative_perplexity=true")
PATHS: dict[str, tuple[Prepare, str]] = {
    "run_dir is a file": (_file_at("run", RUN), "lies below a file"),
    "run_dir below a file": (_file_at("run", f"{RUN}/a/b"), "lies below a file"),
    "run_dir with a long name": (_just(f"{RUN}{'x' * 300}"), "too long a name"),
    "run_dir with a long path": (_just(RUN + "/0123456789" * 500), "too long a name"),
    "run_dir is a loop": (_link_at("run", "run", RUN), "loop of links"),
    "run_dir leads nowhere": (_link_at("run", "gone", RUN), "in the way"),
    "run_dir below a link to nowhere": (_link_at("run", "gone", f"{RUN}/a"), "in the way"),
    "run_dir is read-only": (_folder_at("run", RUN, mode=0o555), "permission denied"),
    "run_dir below a read-only one": (_folder_at("run", f"{RUN}/a", mode=0o555), "permission"),
    "run_dir may not be entered": (_folder_at("run", f"{RUN}/a", mode=0o000), "permission"),
    "run_dir in /proc": (_just("run_dir=/proc/run"), "run_dir=/proc/run cannot be written"),
    "run_dir is a device": (_just("run_dir=/dev/null"), "lies below a file"),
    "checkpoints is a file": (_file_at("run/checkpoints", RUN), "is a file where"),
    "metrics.csv is a folder": (_folder_at("run/metrics.csv", RUN), "is a folder where"),
    "config.yaml is a folder": (_folder_at("run/config.yaml", RUN), "is a folder where"),
    "run.json is a folder": (_folder_at("run/run.json", RUN), "is a folder where"),
    "the lock is a folder": (_folder_at("run/.lock", RUN), "is a folder where"),
    "last.ckpt is a folder": (_folder_at("run/checkpoints/last.ckpt", RUN), "is a folder where"),
    "best.ckpt is a folder": (_folder_at("run/checkpoints/best.ckpt", RUN), "is a folder where"),
    "metrics.csv is read-only": (
        _file_at("run/metrics.csv", RUN, mode=0o444),
        "may not be written",
    ),
    "checkpoints is read-only": (_folder_at("run/checkpoints", RUN, mode=0o555), "permission"),
    "save_dir is a file": (_file_at("save", RUN, SAVE), "checkpointing.save_dir="),
    "save_dir is read-only": (_folder_at("save", RUN, SAVE, mode=0o555), "checkpointing.save_dir="),
    "start is missing": (_just(RUN, START), "is not read by MDLM's own network"),
    "start is missing, mixture": (_just(RUN, START, *LKF), "There is no checkpoint at init.from"),
    "start is a folder": (_folder_at("start.ckpt", RUN, START, *LKF), "without config.json"),
    "start without a mixture": (_file_at("start.ckpt", RUN, START), "to start a mixture"),
    "start is garbage": (_file_at("start.ckpt", RUN, START, *LKF), "start.ckpt"),
    "judge is missing": (
        _just(RUN, *JUDGED, "eval.gen_ppl_eval_model_name_or_path=./nowhere"),
        "there is no judge folder ./nowhere",
    ),
    "judge is empty": (
        _folder_at("judge", RUN, *JUDGED, "eval.gen_ppl_eval_model_name_or_path={0}/judge"),
        "holds no causal language model",
    ),
    "samples is a file": (_file_at("run/samples", RUN, JUDGED[0]), "is a file where"),
    "cache is a file": (_file_at("c", RUN, "data.cache_dir={0}/c"), "data.cache_dir"),
    "cache below a file": (_file_at("c", RUN, "data.cache_dir={0}/c/d"), "data.cache_dir"),
    "cache is read-only": (_folder_at("c", RUN, "data.cache_dir={0}/c", mode=0o555), "data.cache"),
    "no run to sample": (_just(*SAMPLE), "train first"),
    "no run to evaluate": (_just(*LIKELIHOOD), "train first"),
    "no checkpoint to sample": (_just(*SAMPLE, "eval.checkpoint_path={0}/a.ckpt"), "no checkpoint"),
    "checkpoint is a folder": (
        _folder_at("a.ckpt", *SAMPLE, "eval.checkpoint_path={0}/a.ckpt"),
        "no checkpoint",
    ),
    "checkpoint is garbage": (
        _file_at("a.ckpt", *LIKELIHOOD, "eval.checkpoint_path={0}/a.ckpt"),
        "a.ckpt",
    ),
    "samples of an evaluation": (_file_at("run/samples", *SAMPLE), "is a file where"),
    "records of an evaluation": (_file_at("run/records", *SAMPLE), "is a file where"),
    "samples.jsonl is a folder": (_folder_at("run/samples.jsonl", *SAMPLE), "is a folder where"),
    "sample_eval.json is a folder": (_folder_at("run/sample_eval.json", *SAMPLE), "is a folder"),
    "ppl_eval.json is a folder": (_folder_at("run/ppl_eval.json", *LIKELIHOOD), "is a folder"),
    "likelihoods is a file": (_file_at("run/likelihoods", *LIKELIHOOD), "is a file where"),
    "sampling into a read-only place": (_folder_at("run", *SAMPLE, mode=0o555), "permission"),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path, case: str
) -> None:
    prepare, told = PATHS[case]
    with ordinary_user(case):
        arguments = prepare(folder)
    if not any(one.startswith("data.cache_dir") for one in arguments):
        arguments.append(f"data.cache_dir={folder}/cache")
    with ordinary_user(case):
        check(monkeypatch, capfd, folder, [*SMALL, *arguments], told)


TEXTS: dict[str, tuple[Prepare, str]] = {
    "missing": (_just("data.path={0}/a.txt"), "does not exist"),
    "unreadable": (_file_at("a.txt", "data.path={0}/a.txt", mode=0o000), "a.txt cannot be read"),
    "empty": (_file_at("a.txt", "data.path={0}/a.txt", text=""), "data.path"),
    "a pipe": (_fifo_at("a.txt", "data.path={0}/a.txt"), "data.path"),
    "another kind": (_file_at("a.csv", "data.path={0}/a.csv"), "data.path"),
    "an empty folder": (_folder_at("texts", "data.path={0}/texts"), "data.path"),
    "a long name": (_just("data.path={0}/" + "x" * 300 + ".txt"), "does not exist"),
    "a loop": (_link_at("a.txt", "a.txt", "data.path={0}/a.txt"), "data.path"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path, case: str
) -> None:
    prepare, told = TEXTS[case]
    arguments = [f"run_dir={folder}/run", f"data.cache_dir={folder}/cache"]
    with ordinary_user(case):
        arguments += prepare(folder)
        check(monkeypatch, capfd, folder, [*TEXT, *arguments], told)


# --- run folders ---------------------------------------------------------------------------------


def _spoil(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content) and None


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "config.yaml is no YAML": (_spoil("config.yaml", b"a: [1"), "config.yaml is damaged"),
    "config.yaml is binary": (_spoil("config.yaml", b"\xff\xfe\x00"), "config.yaml is damaged"),
    "config.yaml is a list": (_spoil("config.yaml", b"- 1\n"), "config.yaml is damaged"),
    "config.yaml is empty": (_spoil("config.yaml", b"\n"), "config.yaml is damaged"),
    "config.yaml is gone": (lambda run: (run / "config.yaml").unlink(), "has no config.yaml"),
    "last.ckpt of 4 bytes": (_spoil("checkpoints/last.ckpt", b"PK\x03\x04"), "last.ckpt"),
    "last.ckpt is empty": (_spoil("checkpoints/last.ckpt", b""), "last.ckpt"),
    "last.ckpt is text": (_spoil("checkpoints/last.ckpt", b"weights"), "last.ckpt"),
    "last.ckpt is unreadable": (
        lambda run: (run / "checkpoints" / "last.ckpt").chmod(0o000),
        "last.ckpt",
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_run_folders(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    folder: Path,
    trained: Path,
    case: str,
) -> None:
    shutil.copytree(trained, folder / "run")
    if os.geteuid() == 0 and "unreadable" in case:  # the copy is the ordinary user's own
        for path in (folder / "run", *(folder / "run").rglob("*")):
            os.chown(path, NOBODY, -1)
    spoil, told = FOLDERS[case]
    spoil(folder / "run")
    arguments = [f"run_dir={folder}/run", f"data.cache_dir={folder}/cache", "trainer.max_steps=6"]
    before = (folder / "run" / "checkpoints" / "step-4.ckpt").stat().st_mtime_ns
    with ordinary_user(case):
        check(monkeypatch, capfd, folder, [*SMALL, *arguments], told)
    assert (folder / "run" / "checkpoints" / "step-4.ckpt").stat().st_mtime_ns == before
