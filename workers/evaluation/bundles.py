"""What bundles hold, and which needed skills they lack and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.policies import QUERY, Deadline
from tasks.query.pipeline import answer_query
from tasks.services import Services

NO_HIT_REASON = "the answer was NO_SKILL_HIT"
NOT_RANKED_REASON = "not among the first of the ranking"

_SKILL_ID = re.compile(r"[^\s:]+:[^\s,;]+")


@dataclass(frozen=True, slots=True)
class BundleOutcome:
    """One bundle in short.

    skills: ids best first, () for NO_SKILL_HIT. reasons: why a skill that was looked at is not in
    the bundle, by id. tokens: of the Markdown. refused: the answer was NO_SKILL_HIT.
    """

    skills: tuple[str, ...]
    reasons: Mapping[str, str]
    tokens: int
    no_hit: bool

    def reason(self, skill_id: str) -> str:
        """Why a skill is not in the bundle, other skills' ids left out so that reasons add up."""
        if self.no_hit:
            return NO_HIT_REASON
        return _SKILL_ID.sub("another", self.reasons.get(skill_id, NOT_RANKED_REASON))


def evaluate_bundles(
    services: Services,
    tasks: Sequence[Mapping[str, Any]],
    budget: int,
    without: Collection[str] = (),
) -> Iterator[tuple[str, BundleOutcome]]:
    """Ask the whole pipeline for the bundle of each task, within a budget of tokens.

    Raises UsageError where a task is empty or the budget is less than one passage needs.
    """
    for task in tasks:
        request = QueryAsked(
            task=task["instruction"], budget=budget, without=tuple(without), explain=True
        )
        bundle = answer_query(services, Deadline(QUERY.time_limit), task["task_id"], request)
        yield task["task_id"], _outcome(bundle)


def _outcome(bundle: Bundle) -> BundleOutcome:
    rows = (bundle.explain or {}).get("candidates", [])
    reasons = {
        row["skill_id"]: row["verdict"].removeprefix("out: ")
        for row in rows
        if row["verdict"].startswith("out: ")
    }
    reasons |= {left.skill_id: left.reason for left in bundle.left_out}
    return BundleOutcome(
        skills=tuple(skill.skill_id for skill in bundle.skills),
        reasons=reasons,
        tokens=bundle.tokens,
        no_hit=bundle.status == "NO_SKILL_HIT",
    )


def bundle_metrics(
    needed: Mapping[str, Collection[str]], given: Mapping[str, BundleOutcome]
) -> dict[str, float]:
    """Means over tasks; `needed` has an empty collection for a task that no skill answers.

    complete: share of tasks whose bundle holds all needed skills. recall: mean share of the needed
    skills in it. precision: mean share of its skills that are needed, 0 for an empty bundle.
    skills, tokens: per bundle that holds any. refused: share of the tasks with needed skills that
    were answered NO_SKILL_HIT; found: the same share of the tasks without. Figures that no task
    can say anything about are left out.
    """
    rows = [(set(wanted), given[task]) for task, wanted in needed.items()]
    positive = [(wanted, outcome) for wanted, outcome in rows if wanted]
    negative = [outcome for wanted, outcome in rows if not wanted]
    hits = [outcome for _, outcome in rows if not outcome.no_hit]
    report: dict[str, float] = {}
    if positive:
        held = [(wanted, wanted & set(outcome.skills)) for wanted, outcome in positive]
        sizes = [max(len(outcome.skills), 1) for _, outcome in positive]
        report["complete"] = _mean([float(wanted == found) for wanted, found in held])
        report["recall"] = _mean([len(found) / len(wanted) for wanted, found in held])
        report["precision"] = _mean(
            [len(found) / size for (_, found), size in zip(held, sizes, strict=True)]
        )
    if hits:
        report["skills"] = _mean([float(len(outcome.skills)) for outcome in hits])
        report["tokens"] = _mean([float(outcome.tokens) for outcome in hits])
    if positive:
        report["refused"] = _mean([float(outcome.no_hit) for _, outcome in positive])
    if negative:
        report["found"] = _mean([float(outcome.no_hit) for outcome in negative])
    return report


def count_missing_skills(
    needed: Mapping[str, Collection[str]], given: Mapping[str, BundleOutcome]
) -> dict[str, int]:
    """How many needed skills bundles lack, by the reason, the most frequent first."""
    counts = Counter(
        given[task].reason(skill_id)
        for task, wanted in needed.items()
        for skill_id in sorted(set(wanted) - set(given[task].skills))
    )
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
