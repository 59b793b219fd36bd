"""How each method is trained on each small corpus: one place for comparisons and tables.

A recipe is the words of the command that trains it. Names of latent-kernel models are ``lkf-M8``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Recipe:
    """One method's training.

    Attributes:
        overrides: of the command that trains it.
        start: the recipe whose best checkpoint it starts from.
        teacher: the recipe whose model it learns from.
        rounds: after each of which the student is measured; 0 where there are none.
    """

    overrides: tuple[str, ...]
    start: str | None = None
    teacher: str | None = None
    rounds: int = 0

    def but(self, *overrides: str) -> Recipe:
        """The same with other settings."""
        return replace(self, overrides=(*self.overrides, *overrides))

    def of_steps(self, steps: int) -> Recipe:
        """The same, shorter or longer, validated twice, what goes on from another run once."""
        if self.rounds:
            return self.but(*in_rounds(steps, self.rounds))
        interval = f"trainer.val_check_interval={steps if self.start else max(steps // 2, 1)}"
        return self.but(f"trainer.max_steps={steps}", interval)


def in_rounds(steps: int, rounds: int) -> tuple[str, ...]:
    """Words for a training in rounds: a checkpoint is kept of the end of each."""
    each = steps // rounds
    return (
        f"method.rounds={rounds}",
        f"trainer.max_steps={each * rounds}",
        f"trainer.val_check_interval={each}",
        f"checkpointing.every_n_steps={each}",
        f"checkpointing.keep_last={rounds}",
    )


# DUO's own range of gamma belongs to a vocabulary of 30,522: null finds this one's
DUO = ("method=duo", "method.curriculum.gamma_min=null", "method.curriculum.gamma_max=null")
# a trained model is trained on: AdamW, a lower rate, none of the start's schedule
GENTLY = (
    "optim.name=adamw",
    "optim.lr=5e-4",
    "lr_scheduler=constant_warmup",
    "~lr_scheduler.warmup_steps",  # the start's, which this schedule has not
    "lr_scheduler.num_warmup_steps=10",
)
SOTU_GENTLY = (*GENTLY, "~lr_scheduler.decay_fraction")  # its start's schedule has one more
# Chains of 16 steps are what few hundred training steps can shorten to 2; upstream's is 1,024.
SDTT = ("method=sdtt", "method.base_steps=16")
# Eight sequences of eight latents are as many rows as two batches of the other methods.
DI4C = (
    "method=di4c",
    "method.base_steps=16",
    "method.latents=8",
    "loader.global_batch_size=8",
)
DCD = (
    "method=dcd",
    "method.base_steps=16",
    "method.gamma_min=null",
    "method.gamma_max=null",
)
REDI = ("method=redi", "method.generation_steps=32")


def _recipes(
    plain: str,
    autoregressive: str,
    latent: str,
    steps: int,
    pairs: int,
    gently: tuple[str, ...] = GENTLY,
) -> dict[str, Recipe]:
    """Every method but the mixtures.

    Args:
        plain: the experiment of the baselines.
        autoregressive: that of AR.
        latent: that of the latent-kernel model at M = 1.
        steps: of each round of SDTT, DCD and ReDi; Di4C's have half, for a step costs more.
        pairs: of a round of ReDi.
        gently: how a trained model is trained on.
    """
    made = f"method.pairs={pairs}"
    return {
        "ar": Recipe((autoregressive,)),
        "mdlm": Recipe((plain, "method=mdlm")),
        "sedd": Recipe((plain, "method=sedd")),
        "duo": Recipe((plain, *DUO)),
        "sdtt": Recipe((plain, *SDTT, *gently), teacher="mdlm", rounds=3).of_steps(3 * steps),
        "di4c": Recipe((plain, *DI4C, *gently), teacher="sdtt", rounds=2).of_steps(steps),
        "dcd": Recipe((plain, *DCD, *gently), teacher="duo", rounds=3).of_steps(3 * steps),
        "redi": Recipe((plain, *REDI, *gently, made), teacher="duo", rounds=3).of_steps(3 * steps),
        "lkf-M1": Recipe((latent, "model.num_components=1")),
    }


AGREETEXT: dict[str, Recipe] = _recipes(
    "experiment=agreetext_baseline", "experiment=agreetext_ar", "experiment=demo", 60, 1000
)
AGREETEXT["sdtt_lkf-M8"] = Recipe(
    (
        "experiment=demo",
        "model.num_components=8",
        "method=sdtt_lkf",
        "method.base_steps=16",
        *GENTLY,
    ),
    teacher="lkf-M8",
    rounds=3,
).of_steps(180)
AGREETEXT |= {f"lkf-M{M}": Recipe(("experiment=demo", f"model.num_components={M}")) for M in (4, 8)}
SOTU: dict[str, Recipe] = _recipes(
    "experiment=sotu_baseline", "experiment=sotu_ar", "experiment=sotu", 50, 256, SOTU_GENTLY
)
SOTU["sdtt_lkf-M8"] = Recipe(
    (
        "experiment=sotu",
        "model.num_components=8",
        "method=sdtt_lkf",
        "method.base_steps=16",
        *SOTU_GENTLY,
    ),
    teacher="lkf-M8",
    rounds=3,
).of_steps(150)
SOTU |= {
    f"lkf-M{M}": Recipe(("experiment=sotu-mixture", f"model.num_components={M}"), start="lkf-M1")
    for M in (4, 8)
}


def paper(corpus: str, rows: tuple[str, ...]) -> dict[str, Recipe]:
    """The paper's protocol, which ``configs/experiment`` holds: ``lm1b_sdtt`` and so on."""
    recipes = {}
    for row in rows:
        name, _, M = row.partition("-M")
        words = (f"experiment={corpus}_{name}", *((f"model.num_components={M}",) if M else ()))
        teacher, rounds = TEACHERS.get(name, (None, 0))
        recipes[row] = Recipe(words, teacher=teacher, rounds=rounds)
    return recipes


# of the paper's protocol: who teaches, for how many rounds
TEACHERS = {"sdtt": ("mdlm", 7), "di4c": ("sdtt", 5), "redi": ("duo", 3), "dcd": ("duo", 5)}
