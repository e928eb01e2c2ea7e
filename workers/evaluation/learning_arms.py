"""Arms of the replay: ways in which ranking learns from outcomes, none, each alone, and all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from search.scoring.ranker_factors import dump_factors
from skills.outcomes.weights import TRUSTED_OWNERS
from tasks.query.process_state.past_tasks import PastTasks
from tasks.services import Services
from workers.evaluation.learned_links import learn_links, with_learned_links
from workers.training.outcome_labels import read_outcome_labels
from workers.training.ranker_training import MIN_GROUPS, rank_prompt, train_ranker

Learn = Callable[[Services, Path], Services]
"""Function that returns services which use what is learned from the outcomes stored so far.

It gets services with the store of outcomes of a replay, and a folder for files of trained models.
What the library itself has learned is not used.
"""


def _learn(
    services: Services,
    folder: Path,
    *,
    memory: bool = False,
    links: bool = False,
    training: bool = False,
) -> Services:
    """Return services with a memory of past tasks, which also follows later outcomes; with learned
    links; with a trained ranker, or the shipped one if training does not win."""
    plain = _with_memory(with_learned_links(services, None), on=False)
    factors = _train_factors(plain) if training else None
    learned = learn_links(services, services.outcomes) if links else None
    found = _with_memory(with_learned_links(services, learned), on=memory)
    return found if factors is None else _with_factors(found, factors, folder)


WITHOUT = "without"
ARMS: Mapping[str, Learn] = {
    WITHOUT: _learn,
    "memory": partial(_learn, memory=True),
    "links": partial(_learn, links=True),
    "training": partial(_learn, training=True),
    "all": partial(_learn, memory=True, links=True, training=True),
}
"""Arms by name; the first is the baseline."""


def _with_memory(services: Services, *, on: bool) -> Services:
    learning = services.settings.learning.model_copy(update={"memory": on})
    settings = services.settings.model_copy(update={"learning": learning})
    past_tasks = PastTasks(services.outcomes, services.encoder.get, learning)
    return replace(services, settings=settings, past_tasks=past_tasks)


def _train_factors(services: Services) -> dict[str, float] | None:
    """Return factors of the ranker that win on left-out outcomes; None without such factors."""
    trusted = TRUSTED_OWNERS.union(services.settings.learning.trusted_owners)
    prompts = [
        ranked
        for row in read_outcome_labels(services.outcomes, trusted).rows
        if (ranked := rank_prompt(services, row["instruction"], row["gt_skill_ids"], row["weight"]))
    ]
    if len({prompt.group for prompt in prompts}) < MIN_GROUPS:
        return None
    trained = train_ranker(prompts)
    return trained.factors if trained.wins else None


def _with_factors(services: Services, factors: dict[str, float], folder: Path) -> Services:
    path = folder / f"ranker-{len(list(folder.glob('ranker-*.json')))}.json"
    path.write_bytes(dump_factors(factors))
    ranker = services.settings.ranker.model_copy(update={"weights": str(path)})
    settings = services.settings.model_copy(update={"ranker": ranker})
    return replace(services, settings=settings)
