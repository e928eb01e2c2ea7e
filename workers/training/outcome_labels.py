"""Labelled prompts from reported outcomes, weighted against the bias for first places.

A skill at the first place is looked at more often than skills after it, and so helps more often.
Each label is therefore weighted by the inverse of the propensity that a skill at its place is
reported on at all (Joachims et al., *Unbiased Learning-to-Rank with Biased Feedback*, WSDM 2017,
section 4). The propensity is estimated by place, from the share of sent skills with a report.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from skills.batches import batches
from skills.outcomes.labels import SkillLabel, settle_labels
from skills.outcomes.model import AnsweredQuery, Outcome
from skills.record import get_source_id
from tasks.outcomes.protocol import OutcomeStore

MAX_WEIGHT = 10.0
"""Largest weight of a label; the smallest is 1. Without a limit, rare reports of late places would
decide everything."""

_MAX_OWNER_SHARE = 1 / 3
"""Maximum share of all weight for one untrusted owner."""

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
    """Return the prompts with a skill that helped, by task, with `instruction`, `gt_skill_ids` and
    `weight`: from 1 to MAX_WEIGHT before the share of an owner is limited.

    trusted: owners whose share is not limited, and who may judge skills of sources that they
    contributed to. The result depends only on the set of outcomes.
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


def _read_reported(store: OutcomeStore) -> Iterator[tuple[AnsweredQuery, tuple[Outcome, ...]]]:
    """Yield answered queries with their outcomes."""
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
    """Yield the skills that helped, by owner."""
    places = {one.skill_id: one.place for one in answer.skills if one.sent}
    by_owner: defaultdict[str, list[SkillLabel]] = defaultdict(list)
    for label in settle_labels(outcomes):
        source_id = get_source_id(label.skill_id)
        if label.helped and label.owner not in barred.get(source_id, ()):
            by_owner[label.owner].append(label)
    for owner, helped in sorted(by_owner.items()):
        yield _Labelled(owner, answer.task, tuple(helped), places)


def estimate_propensities(sent: Mapping[int, int], reported: Mapping[int, int]) -> list[float]:
    """Return the propensity of a report by place, relative to the first place, which has 1.

    sent, reported: numbers of sent skills, and of those with a report, by place. The
    propensities never increase, are smoothed by two skills of which one has a report, and are
    at least 1 / MAX_WEIGHT.
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
    """Return the mean over the skills that helped of inverse propensity times their own weight.

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
    """Return the weights; those of each untrusted owner are scaled down to at most
    _MAX_OWNER_SHARE of the resulting total.

    If fewer than three owners reported, all untrusted, that is impossible: each then gets an equal
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
        # If this owner is too heavy, so are all after it: each gets an equal share.
        alike = len(limited) - place
        kept = totals[owner]
        if share * alike < 1:
            kept = min(kept, share * others / (1 - share * alike))
        scales[owner] = kept / totals[owner]
        others += kept
    return [
        weight * scales.get(one.owner, 1.0) for one, weight in zip(labelled, weights, strict=True)
    ]
