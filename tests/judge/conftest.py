"""The tiny judge and run of the evaluator's tests."""

from tests.evaluate.conftest import judge_folder, save_judge, tiny_mixture

__all__ = ["judge_folder", "save_judge", "tiny_mixture"]
