"""No file of this repository holds lines of the repositories that it is compared with.

Three lines in a row that also stand in an upstream file count as copied, if they say something: a
blank line, a comment, an import, a lone bracket or keyword do not. Blanks, quotes and what follows
a # make no difference.
Runs for every checkout that $MDLM_HOME, $SEDD_HOME, $DUO_HOME, $SDTT_HOME, $DI4C_HOME, $REDI_HOME
or external/ gives.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = 3
WRITTEN = {".py", ".yaml", ".yml", ".md", ".sh", ".toml", ".txt", ".patch", ".cfg", ""}
SAYS_NOTHING = re.compile(
    r"""
    [^\w]*                                      # nothing but punctuation
    | (from\s+[\w.]+\s+)?import\s.*             # imports
    | (else|try|finally)\s*:                    # lone keywords
    | (return|pass|break|continue|raise)
    | @(staticmethod|classmethod|property|abstractmethod|abc\.abstractmethod|torch\.no_grad\(\))
    | def\s__init__\(self,?\)?:?
    | super\(\)\.__init__\(\)
    | defaults: | -\s_self_                      # Hydra's own words
    """,
    re.VERBOSE,
)


def words_of(text: str) -> Iterator[tuple[int, str]]:
    """(number, line without blanks) of the lines that say something."""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*", "", line).strip()
        if not SAYS_NOTHING.fullmatch(bare):
            yield number, re.sub(r"\s+", "", bare).replace('"', "'")


def runs(text: str) -> dict[tuple[str, ...], int]:
    """Every ``RUN`` such lines in a row, with the number of the first."""
    lines = list(words_of(text))
    windows = (lines[i : i + RUN] for i in range(len(lines) - RUN + 1))
    return {tuple(word for _, word in window): window[0][0] for window in windows}


def texts(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, contents) of the files that people write."""
    for name in names:
        path = folder / name
        if path.suffix in WRITTEN and path.is_file() and path.name != "LICENSE":
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def own_files() -> list[str]:
    """Files of this repository that git knows or would add; all of them where git is not there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        tops = ("lkf_plugin", "configs", "scripts", "benchmarks", "tests", "docs", "patches")
        found = (path for top in tops for path in (ROOT / top).rglob("*"))
        return [path.relative_to(ROOT).as_posix() for path in found]
    return listed.decode().rstrip("\0").split("\0")


def upstream_files(folder: Path) -> list[str]:
    """All files of a checkout, without git's own."""
    names = (path.relative_to(folder) for path in folder.rglob("*"))
    return [name.as_posix() for name in names if ".git" not in name.parts]


def copied(home: Path, own: Iterable[tuple[str, str]]) -> list[str]:
    """``ours:line is theirs:line`` for every copied run."""
    theirs = {
        run: f"{name}:{number}"
        for name, text in texts(home, upstream_files(home))
        for run, number in runs(text).items()
    }
    return [
        f"{name}:{number} is {theirs[run]}: {' | '.join(run)}"
        for name, text in own
        for run, number in runs(text).items()
        if run in theirs
    ]


@pytest.mark.parametrize("name", ("mdlm", "sedd", "duo", "sdtt", "di4c", "redi"))
def test_no_run_of_lines_is_theirs(name: str) -> None:
    home = Path(os.environ.get(f"{name.upper()}_HOME") or ROOT / "external" / name)
    if not any(home.rglob("*.py")):
        pytest.skip(f"no checkout of {name}: set {name.upper()}_HOME")
    assert copied(home, texts(ROOT, own_files())) == []


def test_a_copied_run_is_seen_whatever_its_blanks_and_quotes(tmp_path: Path) -> None:
    theirs = "import abc\n\ndef f(x):\n  y = g(x, 'a')\n\n  return (\n    y + 1\n  )\n"
    (tmp_path / "model.py").write_text(theirs)
    ours = 'def f(x):\n    y = g(x,  "a")\n    # a comment\n    return (\n        y + 1)\n'
    assert copied(tmp_path, [("own.py", ours)]) == [
        "own.py:1 is model.py:3: deff(x): | y=g(x,'a') | return("
    ]
    assert copied(tmp_path, [("own.py", ours.replace("g(x", "h(x"))]) == []


def test_what_says_nothing_is_no_run(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nimport torch\n\ntry:\n    return\nelse:\n    )\n"
    (tmp_path / "model.py").write_text(text)
    assert copied(tmp_path, [("own.py", text)]) == []


def test_this_repository_is_read() -> None:
    names = [name for name, _ in texts(ROOT, own_files())]
    assert "lkf_plugin/corruption.py" in names and "configs/config.yaml" in names
