"""Parts of a bundle: skills, their links, skills left out, and withheld skills."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graph.links.link_rules import estimate_confidence
from graph.records import Link, LinkType
from search.scoring.probability import RIVALS
from skills.bundle.escaping import quote_value
from skills.bundle.model import (
    BundleLink,
    BundlePassage,
    BundleSkill,
    DidNotFit,
    LeftOutPassages,
    LeftOutSkill,
    Revision,
    SafetySummary,
    Withheld,
    WithheldSkill,
)
from skills.headings import heading_paths_from_title
from skills.passages import OpenFences, get_line_ranges
from skills.record import ParsedSkill, SafetyFinding
from skills.skill_policy import PolicyViolation
from tasks.query.choose import ChosenSkill, SkillChoice
from tasks.query.context import QueryContext
from tasks.query.ranking import Ranking, WithheldHit, estimate_probabilities
from tasks.query.select_passages import SkillPassages, find_short_lead_ins
from tasks.query.session.unsent import find_sent_passages, subtract_lines
from tasks.sources.protocol import SKILL_FILE

_MAX_DESCRIPTION_CHARACTERS = 300
_MAX_FILES = 12
_MAX_FINDINGS = 3
_MAX_LINKS = 20
_MAX_LEFT_OUT = 5
_MAX_WITHHELD_NAMED = 50
"""Maximum withheld skills that a bundle names; its count includes all."""
_SCRIPTS = (".py", ".sh", ".js", ".ts", ".rb", ".pl", ".ps1", ".R", ".jl", ".go", ".bat")
_MARKUP = 1.1
"""Ratio of the tokens of sent passages with their tags to the tokens of their text."""

_HEADER_TOKENS = 150
"""Estimated tokens of the header of a skill."""

_LINK_PRIORITY = {
    LinkType.CONFLICT: 0,
    LinkType.DEPENDENCY: 1,
    LinkType.WORKFLOW: 2,
    LinkType.USED_TOGETHER: 3,
    LinkType.ALTERNATIVE: 4,
    LinkType.SEMANTIC: 5,
}


def build_bundle_skill(skill_passages: SkillPassages, indexes: Sequence[int]) -> BundleSkill:
    """Return a skill of the bundle with these passages, and a summary of its parts that are left
    out."""
    revision = skill_passages.revision
    parsed, record, skill_id = revision.parsed, revision.parsed.record, revision.key.skill_id
    kept = {*add_lead_ins(parsed, indexes), *find_sent_passages(parsed, skill_passages.sent)}
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
        probability=round_probability(skill_passages.chosen.probability),
        needed_by=skill_passages.chosen.needed_by,
        why=skill_passages.chosen.why,
        safety=SafetySummary(
            level=record.safety_level,
            reasons=tuple(map(_format_finding, worst[:_MAX_FINDINGS])),
        ),
        passages=tuple(_render_passages(parsed, indexes, skill_passages.sent)),
        scripts=tuple(folder + path for path in scripts[:_MAX_FILES]),
        references=tuple(folder + path for path in others[:_MAX_FILES]),
        left_out=LeftOutPassages(
            passages=len(rest),
            tokens=sum(passage.tokens for passage in rest),
            lines=tuple(spans),
        ),
        paged_by=skill_passages.selected_by,
        detail="continued"
        if skill_passages.sent
        else ("brief" if skill_passages.brief else "full"),
    )


def add_lead_ins(parsed: ParsedSkill, indexes: Iterable[int]) -> set[int]:
    """Return the passages with their short lead-ins, which are sent with what they introduce."""
    found = set(indexes)
    return found | find_short_lead_ins(parsed, found)


def _render_passages(
    parsed: ParsedSkill, indexes: Sequence[int], before: frozenset[int]
) -> Iterator[BundlePassage]:
    """Yield the line ranges to send, without lines that were sent before.

    A heading is sent with a passage right below it and between passages; elsewhere it is only in
    `heading_path`.
    """
    ranges = get_line_ranges(parsed, sorted(add_lead_ins(parsed, indexes)), context=False)
    extended = _extend_to_headings(parsed, ranges)
    paths, fences = heading_paths_from_title(parsed), OpenFences(parsed)
    for first, last in subtract_lines(parsed, extended, before) if before else extended:
        # A scan for each range would take a minute for a skill with 20,000 passages.
        start = bisect_left(parsed.passages, first, key=lambda passage: passage.last_line)
        end = bisect_right(parsed.passages, last, key=lambda passage: passage.first_line)
        inside = parsed.passages[start:end]
        if not inside:
            continue  # headings between passages that were sent before
        yield BundlePassage(
            first_line=first,
            last_line=last,
            heading_path=paths[inside[0].section],
            roles=tuple(dict.fromkeys(passage.role.value for passage in inside)),
            text=parsed.text(first, last),
            open_fence=fences.find(first),
        )


def _extend_to_headings(
    parsed: ParsedSkill, ranges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the ranges, each extended to the heading right above it; joins ranges with only
    headings and blank lines between them."""
    headings = {section.heading_line for section in parsed.sections}
    extended: list[tuple[int, int]] = []
    for first, last in ranges:
        end = extended[-1][1] if extended else 0
        between = [n for n in range(end + 1, first) if parsed.lines[n - 1].strip()]
        if extended and headings.issuperset(between):
            extended[-1] = (extended[-1][0], last)
        else:
            is_below = bool(between) and between[-1] in headings
            extended.append((between[-1] if is_below else first, last))
    return extended


def _format_finding(finding: SafetyFinding) -> str:
    file = f"{finding.file} " if finding.file else ""
    return f"{file}line {finding.line}: {finding.reason}"


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


def _truncate(text: str) -> str:
    flat = " ".join(text.split())
    if len(flat) <= _MAX_DESCRIPTION_CHARACTERS:
        return flat
    return flat[: _MAX_DESCRIPTION_CHARACTERS - 1] + "…"


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


def summarise_unsent(
    selected: Sequence[SkillPassages], allocated: Sequence[Sequence[int] | None]
) -> DidNotFit | None:
    """Return a summary of the needed passages of the chosen skills that are not allocated; None if
    nothing is missing.

    allocated: passage indexes by skill, None for a skill that is not sent. Tags and headers of
    missing passages are estimated.
    """
    skills = passages = tokens = 0
    for skill, indexes in zip(selected, allocated, strict=True):
        sent = add_lead_ins(skill.revision.parsed, indexes or ())
        missing = [index for index in skill.passages[: skill.enough] if index not in sent]
        skills += indexes is None and not skill.sent
        passages += len(missing)
        tokens += sum(skill.revision.parsed.passages[index].tokens for index in missing)
    if not skills and not passages:
        return None
    more = round(tokens * _MARKUP) + skills * _HEADER_TOKENS
    return DidNotFit(skills=skills, passages=passages, tokens=more)


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
    if considered and context.is_on("floor"):
        whole = _estimate_with_withheld(context, ranking)
        considered = considered if whole.is_evident(settings.choice) else []
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
