"""The training set of an encoder: pairs of a query and a skill's text, with hard negatives.

It is built once and saved in the folder of the model, so that an interrupted training can be
resumed after the library has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from config.settings import EncoderSettings
from workers.training.trainer import TrainingOptions


@dataclass(frozen=True, slots=True)
class EncoderOptions(TrainingOptions):
    """Options of the training of an encoder.

    query_prompt, passage_prompt: of the base; None: its own. pairs: maximum number of pairs from
    each skill's own text. negatives: number of hard negatives of a pair in a step. repository:
    pattern whose match in a skill's id names its repository; the folds are parts of the
    repositories. rank: of the adapter that is trained; 0: all weights are trained. layers: number
    of last layers to adapt; 0: all. tokens: maximum length of a text with its prompt.
    """

    query_prompt: str | None = None
    passage_prompt: str | None = None
    pairs: int = 6
    negatives: int = 1
    repository: str = ""
    rank: int = 16
    layers: int = 0
    tokens: int = 96
    learning_rate: float = 3e-4
    temperature: float = 0.02
    batch_size: int = 64

    def get_base_settings(self) -> EncoderSettings:
        """Return the settings that name the model to start from."""
        return EncoderSettings(
            model=self.base,
            query_prompt=self.query_prompt,
            passage_prompt=self.passage_prompt,
            languages=list(self.languages),
        )


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """A query and the text that should be near it: that of the first skill that the query needs.

    text: without the pieces that the query consists of; "" for the skill's own text.
    """

    origin: str
    query: str
    needed: tuple[str, ...]
    text: str = ""
    negatives: tuple[str, ...] = ()


@dataclass(slots=True)
class EncoderTrainingSet:
    """Pairs, held-out pairs and texts of a training.

    texts: the text of each skill, by id. duplicates: by id, skills that may serve as well, and so
    are no negatives in a batch. pool: the skills among which held-out queries search. repositories:
    of the skills that held-out pairs need. notes: counts. filtered: the share of the candidates for
    negatives that each filter removed. prompts: put before queries and texts, set by the training.
    """

    options: EncoderOptions
    pairs: list[TrainingPair] = field(default_factory=list)
    held_out: list[TrainingPair] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pool: tuple[str, ...] = ()
    repositories: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, float] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)

    def text_of(self, pair: TrainingPair) -> str:
        """Return the text of a pair."""
        return pair.text or self.texts[pair.needed[0]]
