"""``lkf harness``: the command of lm-evaluation-harness, which then knows the model ``lkf``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from lkf_plugin.failures import foreseen

NEEDED = (
    "error: lkf harness needs lm-evaluation-harness: pip install 'lkf-plugin[harness]', or run the "
    "evaluations of this package (lkf eval RUN)."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Hands everything to ``lm_eval``, with ``--model lkf`` where no model is named.

    Returns:
        0; 1 without lm-evaluation-harness; 2 after a mistake told in one sentence.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if importlib.util.find_spec("lm_eval") is None:
        print(NEEDED, file=sys.stderr)
        return 1
    from lm_eval.__main__ import cli_evaluate

    import lkf_plugin.harness.adapter  # noqa: F401  registers the model

    sys.argv = ["lm_eval", *with_model(arguments)]
    try:
        cli_evaluate()
    except Exception as error:
        words = foreseen(error)
        if words is None:
            raise
        print(f"error: {words[0]}", file=sys.stderr)
        return words[1]
    return 0


def with_model(arguments: Sequence[str]) -> list[str]:
    """The arguments of ``lm_eval run``; other subcommands and questions stay as they are."""
    rest = list(arguments)
    if rest[:1] == ["run"]:
        rest = rest[1:]
    elif not rest or rest[0] in ("ls", "list", "validate") or rest[0] in ("-h", "--help"):
        return rest
    named = any(word in ("--model", "-M") or word.startswith("--model=") for word in rest)
    return ["run", *rest] if named else ["run", "--model", "lkf", *rest]
