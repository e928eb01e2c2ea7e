"""Page and bundle: from chosen skills to passages within the token budget (spec §5.6–5.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from config.errors import UsageError
from graph.links.link_rules import estimate_confidence
from graph.protocol import Link
from search.protocol import StoredRevision, Vector
from skills.bundle.markdown import render_header, render_markdown, render_passage, render_skill
from skills.bundle.model import (
    Bundle,
    BundleLink,
    BundlePassage,
    BundleSkill,
    LeftOutPassages,
    LeftOutSkill,
    Revision,
    SafetySummary,
)
from skills.bundle.token_budget import BudgetItem, allocate_tokens
from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    get_line_ranges,
    passage_utilities,
    score_passages,
    select_all,
    select_mmr,
    select_passages,
)
from skills.record import ParsedSkill, Role, SafetyFinding
from skills.token_count import count_tokens
from tasks.query.choose import ChosenSkill
from tasks.sources.protocol import SKILL_FILE

_WHOLE_TOKENS = 300
_DESCRIPTION_LENGTH = 300
_LISTED_FILES = 12
_LISTED_RANGES = 12
_LEFT_OUT_TOKENS = 30
_LEAD_IN_TOKENS = 40
_SPENT_AGAIN = 4
_SCRIPTS = (".py", ".sh", ".js", ".ts", ".rb", ".pl", ".ps1", ".R", ".jl", ".go", ".bat")


@dataclass(frozen=True, slots=True)
class SkillPassages:
    """A chosen skill with its passages in the order of their worth.

    wanted: (passage index, worth above 0); paged_by as in the bundle.
    """

    chosen: ChosenSkill
    revision: StoredRevision
    path: str
    passages: tuple[tuple[int, float], ...]
    paged_by: str


def select_skill_passages(
    chosen: ChosenSkill,
    revision: StoredRevision,
    path: str,
    query: PassageQuery,
    vectors: Vector | None,
    gap: float,
    passage_vectors: Vector | None = None,
    send_whole: bool = False,
) -> SkillPassages:
    """Which passages of a skill the query wants, and how much each is worth.

    With `passage_vectors` SkillPager's rule chooses, else the score gap. A skill so short that
    choosing saves nothing is wanted whole, and so is any with `whole`.
    """
    parsed = revision.parsed
    terms = revision.passage_terms
    page = PassageInput(parsed, terms.offsets, terms.terms, terms.counts, vectors, passage_vectors)
    scores = score_passages(query, page, DEFAULT_WEIGHTS)
    total = sum(passage.tokens for passage in parsed.passages)
    if send_whole or total <= _WHOLE_TOKENS:
        indexes, paged_by = select_all(page), "whole"
    elif passage_vectors is not None:
        indexes, paged_by = select_mmr(query, page), "vectors"
    else:
        indexes = select_passages(scores, page, gap)
        paged_by = "vectors" if scores.dense else "words"
    utility = passage_utilities(scores, page)[indexes].tolist()
    return SkillPassages(
        chosen, revision, path, tuple(zip(indexes, utility, strict=True)), paged_by
    )


def assemble(
    bundle: Bundle,
    skills: Sequence[SkillPassages],
    links: Iterable[Link],
    left_out: Sequence[LeftOutSkill],
) -> Bundle:
    """Fill a bundle so that its Markdown stays within its budget, exactly.

    Raises UsageError when not even the best skill with its best passage fits, and names the
    least budget that would do.
    """
    shell = bundle.model_copy(update={"left_out": tuple(left_out)})
    filler = _BundleFiller(shell, skills, tuple(links))
    # What the Markdown costs without any skill, at most: all of them named as left out.
    fixed = filler.fill([None] * len(skills)).tokens
    items = [_budget_item(filler, place) for place in range(len(skills))]
    bought, filled = _spend_budget(filler, items, bundle.budget, fixed)
    while filled.tokens > bundle.budget or not filled.skills:
        if not _drop_least(items, bought, filled.tokens - bundle.budget):
            return _smallest_bundle(filler, items[0], bundle.budget)
        filled = filler.fill(bought)
    return filled


def _budget_item(filler: _BundleFiller, place: int) -> BudgetItem:
    skill_passages = filler.skills[place]
    costs = _costs(skill_passages.revision.parsed, [index for index, _ in skill_passages.passages])
    return BudgetItem(
        count_tokens(render_header(99, filler.skill(place, ()))) + _LEFT_OUT_TOKENS,
        _skill_worth(skill_passages, filler.skills[0]),
        [(index, utility, costs[index]) for index, utility in skill_passages.passages],
    )


def _spend_budget(
    filler: _BundleFiller, items: Sequence[BudgetItem], budget: int, fixed: int
) -> tuple[list[list[int] | None], Bundle]:
    """What is bought, and the bundle with it: the fullest that was found within the budget, or
    the first where even that is above it.

    Passages that are sent together share their headings, so their costs overstate what they take
    (by a quarter over real skills): what is over is spent again, a few times.
    """
    room = budget - fixed
    bought = allocate_tokens(items, room)
    filled = filler.fill(bought)
    for _ in range(_SPENT_AGAIN):
        room += max(budget - filled.tokens, 0)
        more = allocate_tokens(items, room)
        if more == bought:
            break
        fuller = filler.fill(more)
        if fuller.tokens > budget:
            break
        bought, filled = more, fuller
    return bought, filled


def _smallest_bundle(filler: _BundleFiller, best: BudgetItem, budget: int) -> Bundle:
    """The best skill with its shortest passage; raises UsageError when even that is too much."""
    shortest = min(best.passages, key=lambda passage: (passage[2], passage[0]), default=None)
    bought: list[list[int] | None] = [None] * len(filler.skills)
    bought[0] = [shortest[0]] if shortest else []
    filled = filler.fill(bought)
    if filled.tokens <= budget:
        return filled
    raise UsageError(
        f"a budget of {budget} tokens is less than one passage needs; give at least {filled.tokens}"
    )


def _skill_worth(skill_passages: SkillPassages, best: SkillPassages) -> float:
    """How likely the skill is to be needed, 1 for the best: falls with the square of its score."""
    return (max(skill_passages.chosen.score, 0.0) / max(best.chosen.score, 1e-9)) ** 2


def _costs(parsed: ParsedSkill, indexes: Iterable[int]) -> dict[int, int]:
    """Tokens of passages sent alone, with heading and lead-in: at least what they take merged.

    The tags around a passage are counted once a section; rendering each passage for its cost
    would take as long as the rest of the bundle.
    """
    around: dict[int, int] = {}
    costs = {}
    for index in indexes:
        passage = parsed.passages[index]
        if passage.section not in around:
            around[passage.section] = _markup_tokens(parsed.sections[passage.section].heading_path)
        costs[index] = around[passage.section] + passage.tokens
        lead_in = parsed.passages[passage.lead_in].tokens if passage.lead_in >= 0 else 0
        if 0 < lead_in <= _LEAD_IN_TOKENS:
            apart = passage.lead_in != index - 1
            costs[index] += lead_in + apart * around[passage.section]
    return costs


def _markup_tokens(path: tuple[str, ...]) -> int:
    """Tokens of a passage's tags and its heading, with the widest line numbers and role."""
    line = 10**6
    widest = max((role.value for role in Role), key=count_tokens)
    empty = BundlePassage(
        first_line=line - 1,
        last_line=line,
        heading_path=path,
        roles=(widest,),
        text=f"###### {path[-1]}" if path else "",
    )
    return count_tokens(render_passage(empty))


class _BundleFiller:
    """Bundles of the same skills with more or less of each; what stays the same is kept."""

    def __init__(
        self, shell: Bundle, skills: Sequence[SkillPassages], links: Sequence[Link]
    ) -> None:
        self.skills = skills
        self._shell = shell
        self._links = links
        self._sent: dict[tuple[int, tuple[int, ...]], BundleSkill] = {}
        self._tokens: dict[tuple[int, tuple[int, ...], int], int] = {}

    def skill(self, place: int, indexes: Sequence[int]) -> BundleSkill:
        """What is sent of the skill at a place, its tokens not counted."""
        key = place, tuple(indexes)
        if key not in self._sent:
            self._sent[key] = build_bundle_skill(self.skills[place], indexes)
        return self._sent[key]

    def _counted(self, place: int, indexes: Sequence[int], number: int) -> BundleSkill:
        skill, key = self.skill(place, indexes), (place, tuple(indexes), number)
        if key not in self._tokens:
            self._tokens[key] = count_tokens(render_skill(number, skill))
        return skill.model_copy(update={"tokens": self._tokens[key]})

    def fill(self, bought: Sequence[list[int] | None]) -> Bundle:
        """The bundle with these passages of each skill; None leaves a skill out."""
        sent: list[BundleSkill] = []
        left_out = list(self._shell.left_out)
        for place, indexes in enumerate(bought):
            if indexes is None:
                left_out.append(_not_sent(self.skills[place]))
            else:
                sent.append(self._counted(place, indexes, len(sent) + 1))
        ids = {skill.skill_id for skill in sent}
        links = tuple(
            BundleLink(
                source=link.source,
                target=link.target,
                type=link.type.value,
                weight=round(link.weight, 4),
                confidence=round(estimate_confidence(link.type, link.weight), 2),
                evidence=link.evidence,
            )
            for link in self._links
            if link.source in ids and link.target in ids
        )
        update = {"skills": (), "left_out": tuple(left_out), "links": links}
        around = count_tokens(render_markdown(self._shell.model_copy(update=update)))
        tokens = around + sum(skill.tokens for skill in sent)
        return self._shell.model_copy(update=update | {"skills": tuple(sent), "tokens": tokens})


def _not_sent(skill_passages: SkillPassages) -> LeftOutSkill:
    record = skill_passages.revision.parsed.record
    return LeftOutSkill(
        skill_id=skill_passages.revision.key.skill_id,
        name=record.name,
        reason="did not fit into the budget",
        tokens=record.tokens,
    )


def _drop_least(items: Sequence[BudgetItem], bought: list[list[int] | None], excess: int) -> bool:
    """Take back what is worth least until about `excess` tokens are saved: passages beyond a
    skill's first, or else the last skill. False when one skill with one passage is left."""
    choices = sorted(
        (item.utility * utility, place, index, cost)
        for place, item in enumerate(items)
        for index, utility, cost in item.passages
        if index in (bought[place] or ())
    )
    dropped = False
    for _, place, index, cost in choices:
        mine = bought[place]
        if excess > 0 and mine is not None and len(mine) > 1:
            mine.remove(index)
            excess -= cost
            dropped = True
    kept = [place for place, mine in enumerate(bought) if mine is not None]
    if not dropped and len(kept) > 1:
        bought[kept[-1]] = None
        dropped = True
    return dropped


def build_bundle_skill(skill_passages: SkillPassages, indexes: Sequence[int]) -> BundleSkill:
    """A skill of the bundle with these passages, and what of it is left out."""
    parsed, record = skill_passages.revision.parsed, skill_passages.revision.parsed.record
    kept = set(indexes)
    rest = [passage for passage in parsed.passages if passage.index not in kept]
    spans = get_line_ranges(parsed, [passage.index for passage in rest], context=False)
    paths = [file.path for file in record.files]
    scripts = [path for path in paths if path in record.entrypoints or path.endswith(_SCRIPTS)]
    others = [path for path in paths if path not in scripts]
    folder = skill_passages.path.removesuffix(SKILL_FILE)
    return BundleSkill(
        skill_id=skill_passages.revision.key.skill_id,
        name=record.name,
        description=_truncate(record.description),
        source=skill_passages.revision.key.skill_id.partition(":")[0],
        path=skill_passages.path,
        revision=Revision(
            seq=skill_passages.revision.key.seq, content_hash=skill_passages.revision.content_hash
        ),
        licence=record.licence,
        language=record.language,
        score=round(skill_passages.chosen.score, 4),
        why=skill_passages.chosen.why,
        safety=SafetySummary(
            level=record.safety_level,
            reasons=tuple(
                map(_format_finding, sorted(record.safety, key=lambda mark: -mark.level)[:3])
            ),
        ),
        passages=tuple(_passages(parsed, indexes)),
        scripts=tuple(folder + path for path in scripts[:_LISTED_FILES]),
        references=tuple(folder + path for path in others[:_LISTED_FILES]),
        left_out=LeftOutPassages(
            passages=len(rest),
            tokens=sum(passage.tokens for passage in rest),
            lines=tuple(spans[:_LISTED_RANGES]),
        ),
        paged_by=skill_passages.paged_by,
    )


def _passages(parsed: ParsedSkill, indexes: Sequence[int]) -> Iterator[BundlePassage]:
    """The line ranges to send. A heading comes along with what stands right below it; elsewhere it
    is only named as `under`. A short lead-in comes along with what it introduces."""
    sent = set(indexes) | {
        parsed.passages[index].lead_in
        for index in indexes
        if parsed.passages[index].lead_in >= 0
        and parsed.passages[parsed.passages[index].lead_in].tokens <= _LEAD_IN_TOKENS
    }
    for first, last in _with_headings(parsed, get_line_ranges(parsed, sorted(sent), context=False)):
        inside = [p for p in parsed.passages if first <= p.first_line <= last]
        yield BundlePassage(
            first_line=first,
            last_line=last,
            heading_path=parsed.sections[inside[0].section].heading_path,
            roles=tuple(dict.fromkeys(passage.role.value for passage in inside)),
            text=parsed.text(first, last),
        )


def _with_headings(parsed: ParsedSkill, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
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


def _format_finding(mark: SafetyFinding) -> str:
    where = f"line {mark.line}"
    return f"{mark.file} {where}: {mark.reason}" if mark.file else f"{where}: {mark.reason}"


def _truncate(text: str) -> str:
    flat = " ".join(text.split())
    if len(flat) <= _DESCRIPTION_LENGTH:
        return flat
    return flat[: _DESCRIPTION_LENGTH - 1] + "…"
