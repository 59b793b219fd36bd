"""Models that judge samples from outside: generative perplexity, MAUVE."""

from __future__ import annotations

from lkf_plugin.judge.judge import Judge, JudgeScore, decode_samples

__all__ = ["Judge", "JudgeScore", "decode_samples"]
