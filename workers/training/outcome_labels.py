"""Labelled prompts from reported outcomes, weighed against the favour of first places.

A skill that stood first was looked at more often than one behind it, and so helps more often,
whatever it is worth. Each label is therefore weighed by the inverse of the propensity that a skill
at its place is reported on at all (Joachims et al., *Unbiased Learning-to-Rank with Biased
Feedback*, WSDM 2017, section 4), which is estimated from the share of sent skills with a report,
place by place.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from search.batches import batches
from skills.outcomes.labels import SkillLabel, settle_labels
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.outcomes.protocol import OutcomeStore

MAX_WEIGHT = 10.0
"""Largest weight of a label, where the least one has 1: rare reports of late places would decide
everything."""

_MAX_OWNER_SHARE = 1 / 3
"""Share of all weight that one owner who is not trusted may have."""

_BATCH = 500
_PRIOR_REPORTED, _PRIOR_SENT = 1.0, 2.0


class OutcomeLabels(NamedTuple):
    """Labelled prompts as rows of `--feedback`, with `weight`; and the propensity by place."""

    rows: list[dict[str, Any]]
    propensities: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Labelled:
    """An answered query with the skills that helped its task, of one owner."""

    owner: str
    task: str
    helped: tuple[SkillLabel, ...]
    places: Mapping[str, int]


def read_outcome_labels(store: OutcomeStore, trusted: Iterable[str]) -> OutcomeLabels:
    """The prompts whose outcomes say what helped, by task, with `instruction`, `gt_skill_ids` and
    `weight`: from 1 to MAX_WEIGHT before the share of an owner is limited.

    trusted: owners whose share is not limited, and who may judge skills of sources that they
    contributed to. A function of the set of outcomes.
    """
    trusted = frozenset(trusted)
    barred = {
        source_id: owners - trusted for source_id, owners in store.list_contributors().items()
    }
    sent, reported = Counter[int](), Counter[int]()
    labelled: list[_Labelled] = []
    for answer, outcomes in _read_reported(store):
        about = {one.skill_id for one in outcomes}
        for skill in answer.skills:
            if skill.sent:
                sent[skill.place] += 1
                reported[skill.place] += skill.skill_id in about
        labelled += _label(answer, outcomes, barred)
    propensities = estimate_propensities(sent, reported)
    weights = [_weigh(one, propensities) for one in labelled]
    least = min(weights, default=1.0)
    weights = [min(weight / least, MAX_WEIGHT) for weight in weights]
    limited = _limit_owners(labelled, weights, trusted)
    rows = [
        {
            "instruction": one.task,
            "gt_skill_ids": [label.skill_id for label in one.helped],
            "weight": weight,
        }
        for one, weight in zip(labelled, limited, strict=True)
    ]
    rows.sort(key=lambda row: (row["instruction"], row["gt_skill_ids"], row["weight"]))
    return OutcomeLabels(rows, propensities)


def _read_reported(
    store: OutcomeStore,
) -> Iterator[tuple[AnsweredQuery, tuple[Outcome, ...]]]:
    """Answered queries with outcomes."""
    epoch, query_ids = 0, set[str]()
    while True:
        changes = store.get_changes(epoch)
        query_ids.update(changes.query_ids)
        epoch = changes.epoch
        if not changes.more:
            break
    for batch in batches(sorted(query_ids), _BATCH):
        answers, outcomes = store.get_answers(batch), store.get_outcomes(batch)
        yield from ((answers[one], outcomes[one]) for one in batch if one in outcomes)


def _label(
    answer: AnsweredQuery, outcomes: Sequence[Outcome], barred: Mapping[str, frozenset[str]]
) -> Iterator[_Labelled]:
    """What helped, by owner."""
    places = {one.skill_id: one.place for one in answer.skills if one.sent}
    by_owner: defaultdict[str, list[SkillLabel]] = defaultdict(list)
    for label in settle_labels(outcomes):
        source_id = label.skill_id.partition(":")[0]
        if label.helped and label.owner not in barred.get(source_id, ()):
            by_owner[label.owner].append(label)
    for owner, helped in sorted(by_owner.items()):
        yield _Labelled(owner, answer.task, tuple(helped), places)


def estimate_propensities(sent: Mapping[int, int], reported: Mapping[int, int]) -> list[float]:
    """The propensity of a report by place, relative to the first place, which has 1.

    sent, reported: sent skills, and those with a report, by place. Never increasing, smoothed by
    two skills of which one has a report, and at least 1 / MAX_WEIGHT.
    """
    shares = [
        (reported.get(place, 0) + _PRIOR_REPORTED) / (sent.get(place, 0) + _PRIOR_SENT)
        for place in range(1, max(sent, default=0) + 1)
    ]
    found: list[float] = []
    for share in shares:
        relative = min(share / shares[0], found[-1] if found else 1.0)
        found.append(max(relative, 1 / MAX_WEIGHT))
    return found


def _weigh(one: _Labelled, propensities: Sequence[float]) -> float:
    """The mean weight of the skills that helped, with what their reporter's party weighs.

    A skill that was not sent has no place that could have favoured it.
    """
    weights = []
    for label in one.helped:
        place = one.places.get(label.skill_id, 0)
        inverse = 1 / propensities[place - 1] if 0 < place <= len(propensities) else 1.0
        weights.append(inverse * label.helped)
    return sum(weights) / len(weights)


def _limit_owners(
    labelled: Sequence[_Labelled], weights: Sequence[float], trusted: frozenset[str]
) -> list[float]:
    """The weights, with those of each owner who is not trusted scaled down to _MAX_OWNER_SHARE of
    what is left of all.

    Where fewer than three owners reported, none of them trusted, that cannot be: then to an equal
    share.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for one, weight in zip(labelled, weights, strict=True):
        totals[one.owner] += weight
    limited = sorted(totals.keys() - trusted, key=lambda owner: (totals[owner], owner))
    others = sum(totals[owner] for owner in sorted(totals.keys() & trusted))
    share = _MAX_OWNER_SHARE if others else max(_MAX_OWNER_SHARE, 1 / max(len(limited), 1))
    scales: dict[str, float] = {}
    for place, owner in enumerate(limited):
        # Those from this one on are alike if it is too heavy: each has the share of all of them.
        alike = len(limited) - place
        kept = totals[owner]
        if share * alike < 1:
            kept = min(kept, share * others / (1 - share * alike))
        scales[owner] = kept / totals[owner]
        others += kept
    return [
        weight * scales.get(one.owner, 1.0) for one, weight in zip(labelled, weights, strict=True)
    ]


def count_copies(tasks: Sequence[Mapping[str, Any]], seed: int) -> list[int]:
    """How often each task is in a training set: its weight, rounded up or down at random so that
    it is right on average, which may be 0; 1 without a weight.

    The same for the same seed and text; of several tasks with one text, by their order.
    """
    copies = []
    same_text = Counter[str]()
    for task in tasks:
        text, weight = str(task["instruction"]).strip(), float(task.get("weight", 1.0))
        whole = int(weight)
        drawn = random.Random(f"{seed}:copies:{same_text[text]}:{text}").random() < weight - whole
        same_text[text] += 1
        copies.append(whole + drawn)
    return copies
