"""What a study's training run depends on, and the folder that it therefore gets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.corpora.parity import Parity
from lkf_plugin.errors import UserError
from lkf_plugin.records.identity import SHORT, identity_digest

CLAUSES = 4
TIES = ("none", "anneal", "balance", "split")


class Corpus(Protocol):
    """What training needs of a corpus."""

    @property
    def length(self) -> int:
        """Positions L."""

    @property
    def mask_id(self) -> int:
        """Id of the mask; ids run from 0 to it."""

    def sample(self, n: int, seed: int) -> Tensor:
        """Draws [n, L]."""


@dataclass(frozen=True)
class AgreeText:
    """AgreeText behind the interface of the other corpora."""

    clauses: int = CLAUSES

    @property
    def length(self) -> int:
        """Positions L."""
        return self.clauses * agreetext.CLAUSE_LENGTH

    @property
    def mask_id(self) -> int:
        """Id of the mask."""
        return agreetext.MASK_ID

    def sample(self, n: int, seed: int) -> Tensor:
        """Draws [n, L]."""
        return agreetext.sample(n, self.clauses, seed)


@dataclass(frozen=True)
class Recipe:
    """A training run. Equal recipes give equal weights on the same machine.

    Attributes:
        corpus: hidden, parity or agreetext.
        components: latents per sequence: M, where blocks have none.
        latent, block_components, block_length: structure of the latents (``model.latent``), m, and
            positions per block.
        sticky: logit that a chain's states have for staying, at the start.
        steps, seed, batch, lr, warmup: of the optimizer (AdamW, betas .9/.99, clip 1; the rate
            holds, then falls to zero over the last 40%).
        objective: two_time (paper, Eq. nll) or mixture (Eq. x0loss).
        form: two_time's law of a masked position: analytic or learned.
        lambda_ent, lambda_lb: router regulariser, nats per sequence.
        ties: what is done about components that own the same values (see ``ties.py``).
        latent_emb_std, latent_film_std: spread of the latent's parameters at the start.
        width, blocks: of the network.
        ema: decay of the averaged weights, 0 for none.
        t_max: two_time's largest t.
        latent_blocks: L_k, how many of the last blocks see the latent.
        perturb: start from weights moved by one unit in the last place (see ``perturbation.py``).
    """

    corpus: str = "hidden"
    components: int = 16
    steps: int = 3000
    seed: int = 0
    batch: int = 64
    lr: float = 2e-3
    warmup: int = 20
    objective: str = "two_time"
    form: str = "analytic"
    lambda_ent: float = 0.1
    lambda_lb: float = -0.1
    ties: str = "none"
    latent_emb_std: float = 1.0
    latent_film_std: float = 0.02
    width: int = 64
    blocks: int = 2
    ema: float = 0.0
    t_max: float = 0.95
    latent_blocks: int = 1
    perturb: bool = False
    latent: str = "sequence"
    block_components: int = 1
    block_length: int = 1
    sticky: float = 3.0

    def __post_init__(self) -> None:
        make_corpus(self.corpus)
        unknown = [tie for tie in self.ties.split("+") if tie not in TIES]
        if unknown:
            raise UserError(f"ties={self.ties} is unknown: take {', '.join(TIES)}, joined by +.")
        if self.latent != "sequence" and self.ties not in ("none", "anneal"):
            raise UserError(f"ties={self.ties} knows one latent per sequence: take none or anneal.")
        if self.objective not in ("two_time", "mixture"):
            raise UserError(f"objective={self.objective} is unknown: take two_time or mixture.")
        if self.steps < 1 or self.warmup >= self.steps:
            raise UserError(f"steps={self.steps} must be more than the warm-up's {self.warmup}.")

    def model(self) -> dict[str, Any]:
        """The ``model`` config of this network."""
        return {
            "type": "lkf",
            "trunk": "native",
            "hidden_size": self.width,
            "cond_dim": self.width,
            "n_blocks": self.blocks,
            "n_heads": 4,
            "length": make_corpus(self.corpus).length,
            "dropout": 0.0,
            "num_components": self.components,
            "latent": self.latent,
            "block_components": self.block_components,
            "block_length": self.block_length,
            "sticky": self.sticky,
            "latent_blocks": self.latent_blocks,
            "latent_emb_std": self.latent_emb_std,
            "latent_film_std": self.latent_film_std,
            "open_gates": True,
        }

    @property
    def digest(self) -> str:
        """Of everything above, the first hex digits."""
        return identity_digest("training", {"recipe": asdict(self)}, {})[:SHORT]

    @property
    def name(self) -> str:
        """Readable and unique: the run's folder and the record's name."""
        start = f"s{self.seed}" + ("-perturbed" if self.perturb else "")
        blocks = f"x{self.block_components}-{self.latent}" if self.block_components > 1 else ""
        size = f"M{self.components}{blocks}"
        return f"{self.corpus}-{size}-n{self.steps}-{start}-{self.digest}"

    def folder(self, root: Path) -> Path:
        """Where the run lives."""
        return root / "runs" / self.name


def make_corpus(name: str) -> HiddenAgreement | Parity | AgreeText:
    """The corpus at the paper's size.

    Raises:
        UserError: unknown name.
    """
    if name == "hidden":
        return HiddenAgreement()
    if name == "parity":
        return Parity()
    if name == "agreetext":
        return AgreeText()
    raise UserError(f"corpus={name} is unknown: take hidden, parity or agreetext.")
