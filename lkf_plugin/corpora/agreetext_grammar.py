"""The grammar and the lexicon of AgreeText: eight slots a clause, 87 words.

A clause reads ``DET ADJ NOUN ADV VERB PREP MASS .`` and carries two hidden features. The *topic*
(sea, kitchen, forest, music) is one for the whole sequence and shows in ADJ, ADV and MASS; the
*number* (singular, plural) is one for each clause and shows in DET, NOUN and VERB.

A word's id is ``slot.offset + feature * slot.lexemes + lexeme``, so that the slots own consecutive,
disjoint ranges of ids.
"""

from __future__ import annotations

from dataclasses import dataclass

TOPICS = ("sea", "kitchen", "forest", "music")
NUMBERS = ("singular", "plural")

# Feature value -> lexemes, slot by slot. Nouns, verbs and prepositions fit every topic.
_LEXICON: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("DET", "number", ("this", "these")),
    (
        "ADJ",
        "topic",
        (
            "salty briny coastal seafaring",
            "buttery peppery roasted sugary",
            "mossy leafy ferny woodland",
            "jazzy melodious orchestral musical",
        ),
    ),
    (
        "NOUN",
        "number",
        (
            "fox child poet robot mouse stranger giant goose",
            "foxes children poets robots mice strangers giants geese",
        ),
    ),
    (
        "ADV",
        "topic",
        (
            "breezily tidally stormily nautically",
            "hungrily tastily spicily greedily",
            "shadily leafily wildly woodenly",
            "tunefully rhythmically lyrically harmonically",
        ),
    ),
    (
        "VERB",
        "number",
        (
            "runs waits dreams smiles wanders rests hides returns",
            "run wait dream smile wander rest hide return",
        ),
    ),
    ("PREP", "filler", ("with near beyond without",)),
    (
        "MASS",
        "topic",
        (
            "seaweed plankton surf driftwood",
            "flour gravy soup porridge",
            "moss timber lichen undergrowth",
            "jazz opera harmony counterpoint",
        ),
    ),
    ("DOT", "fixed", (".",)),
)


@dataclass(frozen=True)
class Slot:
    """One position of a clause.

    Attributes:
        name: part of speech.
        feature: ``topic``, ``number``, or ``filler`` / ``fixed`` where nothing has to agree.
        offset: first id of the slot's range.
        values: how many values the feature takes (1 where nothing has to agree).
        lexemes: how many interchangeable words each value has.
    """

    name: str
    feature: str
    offset: int
    values: int
    lexemes: int

    @property
    def size(self) -> int:
        """Number of ids in the slot's range."""
        return self.values * self.lexemes


def _build() -> tuple[tuple[Slot, ...], tuple[str, ...]]:
    slots: list[Slot] = []
    vocabulary: list[str] = []
    for name, feature, by_value in _LEXICON:
        groups = [line.split() for line in by_value]
        assert len({len(group) for group in groups}) == 1, name
        slots.append(Slot(name, feature, len(vocabulary), len(groups), len(groups[0])))
        vocabulary.extend(word for group in groups for word in group)
    assert len(set(vocabulary)) == len(vocabulary), "every word must be distinct"
    return tuple(slots), tuple(vocabulary)


SLOTS, WORDS = _build()
CLAUSE_LENGTH = len(SLOTS)
VOCAB_SIZE = len(WORDS)
MASK_ID = VOCAB_SIZE
"""Id of the mask: the first one after the words."""


def carriers(feature: str) -> list[int]:
    """The positions in a clause whose words show ``feature``."""
    return [place for place, slot in enumerate(SLOTS) if slot.feature == feature]


def words() -> list[str]:
    """The 87 distinct words of AgreeText in the order of their ids; none holds a space."""
    return list(WORDS)
