"""Installs a wheel in a bare environment and trains with it, as somebody without this repository.

    python scripts/try_wheel.py dist
    python scripts/try_wheel.py dist --borrow    # dependencies of this environment, nothing fetched

The environment has the wheel, what it declares, and nothing else. There a text file is trained on
by ``lkf``, the run is resumed, sampled and evaluated. ``make wheel`` builds and does this.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

STEPS = 6
RUN = (
    "experiment=own-text", "data.path=my.txt", "data.min_characters=1000", "data.vocab_size=300",
    "model.hidden_size=32", "model.cond_dim=16", "model.n_blocks=2", "model.latent_blocks=1",
    "model.length=32", "loader.global_batch_size=4", "loader.eval_global_batch_size=4",
    "lr_scheduler.warmup_steps=2", "lr_scheduler.total_steps=6", "trainer.val_check_interval=3",
    "trainer.accelerator=cpu", "trainer.devices=1", "trainer.precision=32-true",
    "checkpointing.every_n_steps=3", "run_dir=run", "data.cache_dir=cache",
)  # fmt: skip


def text() -> str:
    """A small text: numbers in words."""
    digits = "zero one two three four five six seven eight nine".split()
    lines = [" ".join(digits[int(d)] for d in str(number * number)) for number in range(1500)]
    return ".\n".join(lines) + ".\n"


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if everything worked; the first command that fails ends the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with one wheel in it")
    parser.add_argument("--borrow", action="store_true", help="take this environment's packages")
    args = parser.parse_args(arguments)
    wheels = sorted(args.folder.glob("*.whl"))
    if len(wheels) != 1:
        print(f"error: {args.folder} holds {len(wheels)} wheels: build one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        python = environment(place / "venv", wheels[0].resolve(), args.borrow)
        work = place / "work"
        work.mkdir()
        (work / "my.txt").write_text(text(), encoding="utf-8")
        lkf = str(python.with_name("lkf"))
        where = call([str(python), "-c", "import lkf_plugin; print(lkf_plugin.__file__)"], work)
        assert str(place) in where, f"not the wheel's: {where}"
        call([lkf, "train", *RUN, "trainer.max_steps=3"], work)
        told = call([lkf, "train", *RUN, f"trainer.max_steps={STEPS}"], work)
        assert f"going on from step 3 of {STEPS}" in told, told
        call([lkf, "sample", "run", "sampling.steps=2", "loader.eval_batch_size=2"], work)
        call([lkf, "eval", "run", "trainer.limit_val_batches=2"], work)
        for made in ("samples.jsonl", "ppl_eval.json", "checkpoints/best.ckpt"):
            assert (work / "run" / made).is_file(), made
        call([lkf, "report", ".", "--html", "page.html"], work)
        print(call([lkf, "doctor"], work))
    print(f"{wheels[0].name} trains, goes on, samples, evaluates and reports by itself")
    return 0


def environment(folder: Path, wheel: Path, borrow: bool) -> Path:
    """The Python of a new environment with the wheel."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if borrow:
        asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
        inside = Path(call([str(python), "-c", asked], folder).strip())
        # every place of packages here, but no editable checkout: a line of a .pth is one folder
        places = {sysconfig.get_path("purelib"), *(p for p in sys.path if "site-packages" in p)}
        (inside / "borrowed.pth").write_text("\n".join(sorted(places)) + "\n", encoding="utf-8")
    call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
          *(["--no-deps"] if borrow else []), str(wheel)], folder)  # fmt: skip
    return python


def call(command: list[str], folder: Path) -> str:
    """A command's output; on a failure what it said, and the end."""
    keep = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=folder, env=keep, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}", file=sys.stderr)
        sys.exit(1)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
