"""Evaluation of bundles: completeness, and the reasons why needed skills are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.services import Services
from workers.evaluation.ask import ask

NO_HIT_REASON = "answered NO_SKILL_HIT"
NOT_RANKED_REASON = "not ranked high enough"
WITHHELD_REASON = "withheld by the policy"
ABSENT_REASON = "not in the library"


@dataclass(frozen=True, slots=True)
class BundleOutcome:
    """Summary of one bundle.

    skills: ids, best first; empty for NO_SKILL_HIT. reasons: by id, why a skill is not in the
    bundle, without ids of other skills, so that reasons group. tokens: tokens of its Markdown.
    no_hit: whether the answer was NO_SKILL_HIT.
    """

    skills: tuple[str, ...]
    reasons: Mapping[str, str]
    tokens: int
    no_hit: bool

    def reason(self, skill_id: str) -> str:
        """Return why a skill is not in the bundle."""
        return self.reasons.get(skill_id, NO_HIT_REASON if self.no_hit else NOT_RANKED_REASON)


def evaluate_bundles(
    services: Services,
    tasks: Sequence[Mapping[str, Any]],
    budget: int,
    without: Collection[str] = (),
) -> Iterator[tuple[str, BundleOutcome]]:
    """Run the query pipeline for each task; yield task id and outcome.

    budget: tokens of a bundle. without: stages to switch off. Raises UsageError if a task is empty
    or the budget too small for one passage.
    """
    for task in tasks:
        request = QueryAsked(
            task=task["instruction"], budget=budget, without=tuple(without), explain=True
        )
        bundle = ask(services, task["task_id"], request)
        published = services.library.latest.pointers
        absent = [one for one in task.get("gt_skill_ids", ()) if one not in published]
        yield task["task_id"], summarise_bundle(bundle, absent)


def summarise_bundle(bundle: Bundle, absent: Collection[str]) -> BundleOutcome:
    """Summarise a bundle. absent: needed skills that the library does not have."""
    reasons = {} if bundle.status == "NO_SKILL_HIT" else _find_reasons(bundle)
    reasons |= dict.fromkeys((one.skill_id for one in bundle.withheld.skills), WITHHELD_REASON)
    reasons |= dict.fromkeys(absent, ABSENT_REASON)
    return BundleOutcome(
        skills=tuple(skill.skill_id for skill in bundle.skills),
        reasons=reasons,
        tokens=bundle.tokens,
        no_hit=bundle.status == "NO_SKILL_HIT",
    )


def _find_reasons(bundle: Bundle) -> dict[str, str]:
    """Return why candidates are not in the bundle."""
    rows = (bundle.explain or {}).get("candidates", [])
    reasons = {
        row["skill_id"]: row["verdict"].removeprefix("out: ")
        for row in rows
        if row["verdict"].startswith("out: ")
    }
    reasons |= {left.skill_id: left.reason for left in bundle.left_out}
    ids = {row["skill_id"] for row in rows} | {skill.skill_id for skill in bundle.skills}
    # The longest first: an id may begin with another one.
    ordered = sorted(ids | {left.other for left in bundle.left_out if left.other}, key=len)[::-1]
    for skill_id, reason in reasons.items():
        for other in ordered:
            reason = reason.replace(other, "another")
        reasons[skill_id] = reason
    return reasons


def bundle_metrics(
    needed: Mapping[str, Collection[str]], given: Mapping[str, BundleOutcome]
) -> dict[str, float]:
    """Return means over tasks; a task that no skill answers has an empty collection in `needed`.

    complete: share of tasks whose bundle holds all needed skills. recall: mean share of the needed
    skills in it. precision: mean share of its skills that are needed, 0 for an empty bundle.
    skills, tokens: per bundle that is not NO_SKILL_HIT. false_no_hit: share of the tasks with
    needed skills that were answered NO_SKILL_HIT. true_no_hit: the same share of the other tasks.
    Metrics without a task to compute them from are left out.
    """
    rows = [(set(wanted), given[task]) for task, wanted in needed.items()]
    positive = [(wanted, outcome) for wanted, outcome in rows if wanted]
    negative = [outcome for wanted, outcome in rows if not wanted]
    hits = [outcome for _, outcome in rows if not outcome.no_hit]
    report: dict[str, float] = {}
    if positive:
        held = [(wanted, wanted & set(outcome.skills)) for wanted, outcome in positive]
        sizes = [max(len(outcome.skills), 1) for _, outcome in positive]
        report["complete"] = fmean(wanted == found for wanted, found in held)
        report["recall"] = fmean(len(found) / len(wanted) for wanted, found in held)
        report["precision"] = fmean(
            len(found) / size for (_, found), size in zip(held, sizes, strict=True)
        )
    if hits:
        report["skills"] = fmean(len(outcome.skills) for outcome in hits)
        report["tokens"] = fmean(outcome.tokens for outcome in hits)
    if positive:
        report["false_no_hit"] = fmean(outcome.no_hit for _, outcome in positive)
    if negative:
        report["true_no_hit"] = fmean(outcome.no_hit for outcome in negative)
    return report


def count_missing_skills(
    needed: Mapping[str, Collection[str]], given: Mapping[str, BundleOutcome]
) -> dict[str, int]:
    """Return the number of needed skills missing in bundles by reason, most frequent first."""
    counts = Counter(
        given[task].reason(skill_id)
        for task, wanted in needed.items()
        for skill_id in sorted(set(wanted) - set(given[task].skills))
    )
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
