"""Parts of a bundle besides its skills: links, probability, skills left out or withheld."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graph.links.link_rules import estimate_confidence
from graph.records import Link, LinkType
from search.scoring.probability import RIVALS
from skills.bundle.escaping import quote_value
from skills.bundle.model import (
    BundleLink,
    LeftOutSkill,
    Withheld,
    WithheldSkill,
)
from skills.record import get_source_id
from skills.skill_policy import PolicyViolation
from tasks.query.choose import ChosenSkill, SkillChoice, is_evident
from tasks.query.context import QueryContext
from tasks.query.ranking import Ranking, WithheldHit, estimate_probabilities
from tasks.query.select_passages import SkillPassages
from tasks.sources.readers import get_source_folder
from tasks.sources.uploads.store import UPLOAD_KIND

_MAX_LINKS = 20
_MAX_LEFT_OUT = 5
_MAX_WITHHELD_NAMED = 50
"""Maximum withheld skills that a bundle names; its count includes all."""
_LINK_PRIORITY = {
    LinkType.CONFLICT: 0,
    LinkType.DEPENDENCY: 1,
    LinkType.WORKFLOW: 2,
    LinkType.USED_TOGETHER: 3,
    LinkType.ALTERNATIVE: 4,
    LinkType.SEMANTIC: 5,
}


def estimate_bundle(ranking: Ranking, held: Sequence[ChosenSkill]) -> float | None:
    """Return the probability that one of the skills that the bundle holds is right: that of the
    library, less the share of the other candidates."""
    if ranking.selection is not None or ranking.probability is None:
        return None
    taken = {one.skill_id for one in held}
    odds = [(hit.key.skill_id, hit.probability or 0.0) for hit in ranking.hits[:RIVALS]]
    total = sum(probability for _, probability in odds)
    share = sum(probability for skill_id, probability in odds if skill_id in taken)
    first = max((one.probability or 0.0 for one in held), default=0.0)
    return round(max(ranking.probability * share / total, first), 4) if total else 0.0


def round_probability(probability: float | None) -> float | None:
    """Return a probability with four decimals."""
    return None if probability is None else round(probability, 4)


def build_bundle_link(link: Link) -> BundleLink:
    """Return a link of the bundle, with the confidence of its type and weight."""
    return BundleLink(
        source=link.source,
        target=link.target,
        type=link.type.value,
        weight=round(link.weight, 4),
        confidence=round(estimate_confidence(link.type, link.weight), 2),
        evidence=link.evidence,
    )


def select_links(context: QueryContext, selected: Sequence[SkillPassages]) -> list[Link]:
    """Return the links among the skills of a bundle, the strongest types first.

    A semantic or alternative link is kept only between two skills without any other link; a link of
    a type without direction is kept only once.
    """
    ids = {skill.chosen.skill_id for skill in selected}
    found = {
        (link.source, link.target, link.type): link
        for link in context.services.graph.get_links_among(sorted(ids))
    }
    kept: dict[frozenset[str], list[Link]] = {}
    for link in sorted(found.values(), key=lambda one: (_LINK_PRIORITY[one.type], one.source)):
        pair = kept.setdefault(frozenset((link.source, link.target)), [])
        is_repeated = not link.type.is_directed and any(one.type is link.type for one in pair)
        if not pair or not (is_repeated or link.type in (LinkType.SEMANTIC, LinkType.ALTERNATIVE)):
            pair.append(link)
    return [link for pair in kept.values() for link in pair][:_MAX_LINKS]


def list_left_out(context: QueryContext, choice: SkillChoice) -> list[LeftOutSkill]:
    """Return skills that were considered and not chosen: the first few, or all if the request
    explains."""
    shown = choice.left_out if context.request.explain else choice.left_out[:_MAX_LEFT_OUT]
    return [
        LeftOutSkill(
            skill_id=left.skill_id,
            name=left.skill_id.rpartition("/")[2].rpartition(":")[2],
            reason=left.reason,
            cause=left.cause,
            other=left.other,
        )
        for left in shown
    ]


def find_folders(context: QueryContext, skill_ids: Iterable[str]) -> dict[str, str]:
    """Return the folders of the sources of these skills, without those of uploads, which agents
    cannot read; none while the catalog is away."""
    names = set(map(get_source_id, skill_ids))
    return {
        source.source_id: get_source_folder(source)
        for source in context.policy_filter.sources
        if source.source_id in names and source.kind != UPLOAD_KIND
    }


def collect_withheld(
    context: QueryContext, ranking: Ranking, choice: SkillChoice
) -> tuple[Withheld, str]:
    """Return the withheld skills, and the warning that the best match of all is one of them, "" if
    it is not. Skills are listed best first as they would have been considered without the policy,
    then withheld dependencies.

    Candidates count only if the library, the withheld ones included, has evidence for the task.
    """
    settings = context.services.settings
    found = filter_considered(ranking.withheld, context.top, settings.choice.relative)
    considered = sorted(found, key=lambda hit: (hit.rank, -hit.relative_score))
    if considered and not is_evident(context, _estimate_with_withheld(context, ranking)):
        considered = []
    ranks = {hit.skill_id: place + hit.rank for place, hit in enumerate(considered, 1)}
    violations = {hit.skill_id: hit.violation for hit in considered} | choice.withheld
    named = settings.policy.name_withheld
    warning = warn_of_best(considered[0], name_it=named) if considered else ""
    return build_withheld(violations, ranks, name_them=named), warning


def warn_of_best(hit: WithheldHit, *, name_it: bool) -> str:
    """Return a warning that a withheld skill is the best match, with the reason and the setting
    that would allow it; "" if a skill that may be sent ranks above it."""
    if hit.rank:
        return ""
    name = f", {quote_value(hit.skill_id)}," if name_it else ""
    setting = f"; it would be sent with {hit.violation.setting}" if hit.violation.setting else ""
    return (
        f"the best match{name} would rank 1 and is withheld by policy: "
        f"{hit.violation.reason}{setting}"
    )


def _estimate_with_withheld(context: QueryContext, ranking: Ranking) -> Ranking:
    """Return the ranking as it would be without the policy."""
    kept = [one.hit for one in ranking.withheld if one.hit is not None]
    hits = sorted([*ranking.hits, *kept], key=lambda hit: -hit.score)
    library, everything = context.services.library, replace(ranking, hits=tuple(hits))
    return estimate_probabilities(everything, library.latest.statistics, library.records)


def filter_considered(
    hits: Iterable[WithheldHit], top: int, relative: float
) -> Iterator[WithheldHit]:
    """Yield the withheld hits that `choose` would have considered: near the top, and with a score
    of at least the share `relative` of the best."""
    for hit in hits:
        if hit.rank < 2 * top and hit.relative_score >= relative:
            yield hit


def build_withheld(
    violations: Mapping[str, PolicyViolation], ranks: Mapping[str, int], *, name_them: bool
) -> Withheld:
    """Return the bundle's report of withheld skills: their number by kind, and their ids if
    `name_them`.

    ranks: by skill_id, the place that a candidate would have.
    """
    kinds = Counter(violation.kind for violation in violations.values())
    named = [
        WithheldSkill(
            skill_id=skill_id,
            kind=violation.kind,
            reason=violation.reason,
            rank=ranks.get(skill_id, 0),
            setting=violation.setting,
        )
        for skill_id, violation in list(violations.items())[
            : _MAX_WITHHELD_NAMED if name_them else 0
        ]
    ]
    return Withheld(count=len(violations), kinds=dict(sorted(kinds.items())), skills=tuple(named))
