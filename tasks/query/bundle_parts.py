"""The parts of a bundle: its skills, their links, what is left out and what is withheld."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graph.links.link_rules import estimate_confidence
from graph.records import Link, LinkType
from skills.bundle.model import (
    BundleLink,
    BundlePassage,
    BundleSkill,
    LeftOutPassages,
    LeftOutSkill,
    Revision,
    SafetySummary,
    Withheld,
    WithheldSkill,
)
from skills.passages import get_line_ranges
from skills.record import ParsedSkill, SafetyFinding
from skills.skill_policy import PolicyViolation
from tasks.query.choose import SkillChoice
from tasks.query.context import QueryContext
from tasks.query.ranking import Ranking, WithheldHit
from tasks.query.select_passages import SkillPassages
from tasks.sources.protocol import SKILL_FILE

MAX_LEAD_IN_TOKENS = 40
"""A lead-in up to this length is sent with the passage that it introduces."""

_MAX_DESCRIPTION_CHARACTERS = 300
_MAX_FILES = 12
_MAX_FINDINGS = 3
_MAX_LINE_RANGES = 12
_MAX_LINKS = 20
_MAX_LEFT_OUT = 5
_MAX_WITHHELD_NAMED = 50
"""Withheld skills that a bundle names; it counts all."""
_SCRIPTS = (".py", ".sh", ".js", ".ts", ".rb", ".pl", ".ps1", ".R", ".jl", ".go", ".bat")
_LINK_PRIORITY = {
    LinkType.CONFLICT: 0,
    LinkType.DEPENDENCY: 1,
    LinkType.WORKFLOW: 2,
    LinkType.ALTERNATIVE: 3,
    LinkType.SEMANTIC: 4,
}


def build_bundle_skill(skill_passages: SkillPassages, indexes: Sequence[int]) -> BundleSkill:
    """A skill of the bundle with these passages, and what of it is left out."""
    revision = skill_passages.revision
    parsed, record, skill_id = revision.parsed, revision.parsed.record, revision.key.skill_id
    kept = set(indexes)
    rest = [passage for passage in parsed.passages if passage.index not in kept]
    spans = get_line_ranges(parsed, [passage.index for passage in rest], context=False)
    paths = [file.path for file in record.files]
    scripts = [path for path in paths if path in record.entrypoints or path.endswith(_SCRIPTS)]
    others = [path for path in paths if path not in scripts]
    folder = skill_passages.path.removesuffix(SKILL_FILE)
    worst = sorted(record.safety, key=lambda finding: -finding.level)
    return BundleSkill(
        skill_id=skill_id,
        name=record.name,
        description=_truncate(record.description),
        source=skill_id.partition(":")[0],
        path=skill_passages.path,
        revision=Revision(seq=revision.key.seq, content_hash=revision.content_hash),
        licence=record.licence,
        language=record.language,
        score=round(skill_passages.chosen.score, 4),
        why=skill_passages.chosen.why,
        safety=SafetySummary(
            level=record.safety_level,
            reasons=tuple(map(_format_finding, worst[:_MAX_FINDINGS])),
        ),
        passages=tuple(_render_passages(parsed, indexes)),
        scripts=tuple(folder + path for path in scripts[:_MAX_FILES]),
        references=tuple(folder + path for path in others[:_MAX_FILES]),
        left_out=LeftOutPassages(
            passages=len(rest),
            tokens=sum(passage.tokens for passage in rest),
            lines=tuple(spans[:_MAX_LINE_RANGES]),
        ),
        paged_by=skill_passages.paged_by,
    )


def _render_passages(parsed: ParsedSkill, indexes: Sequence[int]) -> Iterator[BundlePassage]:
    """The line ranges to send.

    A heading is sent with a passage right below it; elsewhere it is only in `heading_path`. A
    short lead-in is sent with the passage that it introduces.
    """
    sent = set(indexes) | {
        parsed.passages[index].lead_in
        for index in indexes
        if parsed.passages[index].lead_in >= 0
        and parsed.passages[parsed.passages[index].lead_in].tokens <= MAX_LEAD_IN_TOKENS
    }
    ranges = get_line_ranges(parsed, sorted(sent), context=False)
    for first, last in _extend_to_headings(parsed, ranges):
        inside = [p for p in parsed.passages if first <= p.first_line <= last]
        yield BundlePassage(
            first_line=first,
            last_line=last,
            heading_path=parsed.sections[inside[0].section].heading_path,
            roles=tuple(dict.fromkeys(passage.role.value for passage in inside)),
            text=parsed.text(first, last),
        )


def _extend_to_headings(
    parsed: ParsedSkill, ranges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The ranges with the heading right above each; ranges with only blank lines between them
    are joined."""
    headings = {section.heading_line for section in parsed.sections if section.heading_line}
    extended: list[tuple[int, int]] = []
    for first, last in ranges:
        above = first - 1
        while above > 0 and not parsed.text(above, above).strip():
            above -= 1
        start = above if above in headings else first
        if extended and not parsed.text(extended[-1][1] + 1, start - 1).strip():
            extended[-1] = (extended[-1][0], last)
        else:
            extended.append((start, last))
    return extended


def _format_finding(finding: SafetyFinding) -> str:
    file = f"{finding.file} " if finding.file else ""
    return f"{file}line {finding.line}: {finding.reason}"


def _truncate(text: str) -> str:
    flat = " ".join(text.split())
    if len(flat) <= _MAX_DESCRIPTION_CHARACTERS:
        return flat
    return flat[: _MAX_DESCRIPTION_CHARACTERS - 1] + "…"


def build_bundle_link(link: Link) -> BundleLink:
    """A link of the bundle, with the confidence of its type and weight."""
    return BundleLink(
        source=link.source,
        target=link.target,
        type=link.type.value,
        weight=round(link.weight, 4),
        confidence=round(estimate_confidence(link.type, link.weight), 2),
        evidence=link.evidence,
    )


def select_links(context: QueryContext, selected: Sequence[SkillPassages]) -> list[Link]:
    """Links among the skills of a bundle, the strongest types first.

    A semantic or alternative link is kept only between two skills without any other link.
    """
    ids = {skill.chosen.skill_id for skill in selected}
    found = {
        (link.source, link.target, link.type): link
        for link in context.services.graph.get_links_among(sorted(ids))
    }
    kept: dict[frozenset[str], list[Link]] = {}
    for link in sorted(found.values(), key=lambda one: (_LINK_PRIORITY[one.type], one.source)):
        pair = kept.setdefault(frozenset((link.source, link.target)), [])
        if not pair or link.type not in (LinkType.SEMANTIC, LinkType.ALTERNATIVE):
            pair.append(link)
    return [link for pair in kept.values() for link in pair][:_MAX_LINKS]


def list_left_out(context: QueryContext, choice: SkillChoice) -> list[LeftOutSkill]:
    """Skills that were considered and not chosen: the first few, or all if the request explains."""
    shown = choice.left_out if context.request.explain else choice.left_out[:_MAX_LEFT_OUT]
    return [
        LeftOutSkill(skill_id=skill_id, name=skill_id.rpartition("/")[2], reason=reason)
        for skill_id, reason in shown
    ]


def collect_withheld(context: QueryContext, ranking: Ranking, choice: SkillChoice) -> Withheld:
    """What would have been considered without the policy, best first, then withheld dependencies.

    Candidates count only if the library, the withheld ones included, has evidence for the task.
    """
    settings = context.services.settings
    violations: dict[str, PolicyViolation] = {}
    if ranking.withheld:
        evidence = max(ranking.evidence, *(hit.evidence for hit in ranking.withheld))
        near = max(ranking.best_cosine or 0.0, *(hit.best_cosine for hit in ranking.withheld))
        whole = replace(ranking, evidence=evidence, best_cosine=near or None)
        if not context.is_on("floor") or whole.is_evident(settings.choice):
            considered = filter_considered(ranking.withheld, context.top, settings.choice.relative)
            violations |= considered
    violations |= choice.withheld
    return build_withheld(violations, name_them=settings.policy.name_withheld)


def filter_considered(
    hits: Iterable[WithheldHit], top: int, relative: float
) -> Iterator[tuple[str, PolicyViolation]]:
    """The withheld hits that `choose` would have considered: near the top, and with a score of at
    least the share `relative` of the best."""
    for hit in hits:
        if hit.rank < 2 * top and hit.relative_score >= relative:
            yield hit.skill_id, hit.violation


def build_withheld(violations: Mapping[str, PolicyViolation], *, name_them: bool) -> Withheld:
    """The bundle's report of withheld skills: their number by kind, and their ids if wanted."""
    kinds = Counter(violation.kind for violation in violations.values())
    named = [
        WithheldSkill(skill_id=skill_id, kind=violation.kind, reason=violation.reason)
        for skill_id, violation in list(violations.items())[
            : _MAX_WITHHELD_NAMED if name_them else 0
        ]
    ]
    return Withheld(count=len(violations), kinds=dict(sorted(kinds.items())), skills=tuple(named))
