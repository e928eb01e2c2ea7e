"""The ways in which ranking learns from outcomes: none, each by itself, and all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from search.scoring.ranker_factors import dump_factors
from skills.outcomes.weights import TRUSTED_OWNERS
from tasks.query.process_state.past_tasks import PastTasks
from tasks.services import Services
from workers.evaluation.learned_links import learn_links, with_learned_links
from workers.training.outcome_labels import read_outcome_labels
from workers.training.ranker_training import MIN_GROUPS, rank_prompt, train_ranker

Learn = Callable[[Services, Path], Services]
"""Gives services that answer with what is learned of the outcomes stored so far, from services
whose store of outcomes is that of a replay; what the library itself has learned is not used. The
folder is for files of trained models."""


def _learn_nothing(services: Services, _folder: Path) -> Services:
    return _with_memory(with_learned_links(services, None), on=False)


def _remember(services: Services, _folder: Path) -> Services:
    """Answers also with what is reported after this."""
    return _with_memory(with_learned_links(services, None), on=True)


def _follow_links(services: Services, _folder: Path) -> Services:
    return _with_memory(_with_links(services), on=False)


def _train(services: Services, folder: Path) -> Services:
    """The ranker; the shipped one where a trained one does not win, as in `train ranker`."""
    plain = _learn_nothing(services, folder)
    factors = _train_factors(plain)
    return plain if factors is None else _with_factors(plain, factors, folder)


def _learn_all(services: Services, folder: Path) -> Services:
    factors = _train_factors(_learn_nothing(services, folder))
    found = _with_memory(_with_links(services), on=True)
    return found if factors is None else _with_factors(found, factors, folder)


WITHOUT = "without"
ARMS: Mapping[str, Learn] = {
    WITHOUT: _learn_nothing,
    "memory": _remember,
    "links": _follow_links,
    "training": _train,
    "all": _learn_all,
}
"""The others are compared with the first."""


def _with_links(services: Services) -> Services:
    return with_learned_links(services, learn_links(services, services.outcomes))


def _with_memory(services: Services, *, on: bool) -> Services:
    learning = services.settings.learning.model_copy(update={"memory": on})
    settings = services.settings.model_copy(update={"learning": learning})
    past_tasks = PastTasks(services.outcomes, services.encoder.get, learning)
    return replace(services, settings=settings, past_tasks=past_tasks)


def _train_factors(services: Services) -> dict[str, float] | None:
    """Factors of the ranker that win on left-out outcomes; None if there are none."""
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
