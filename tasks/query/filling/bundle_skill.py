"""Skills of a bundle: the header of a chosen skill, with any of its passages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from skills.bundle.markdown import render_passage
from skills.bundle.model import (
    BundlePassage,
    BundleSkill,
    LeftOutPassages,
    Revision,
    SafetySummary,
)
from skills.passages import OpenFences, get_line_ranges
from skills.passages.headings import heading_paths_from_title
from skills.record import ParsedSkill, SafetyFinding, get_source_id
from skills.token_count import count_tokens
from tasks.query.bundle_parts import round_probability
from tasks.query.select_passages import MAX_LEAD_IN_TOKENS, SkillPassages, find_short_lead_ins
from tasks.query.session.unsent import LineRange, find_sent_passages, subtract_lines
from tasks.sources.protocol import SKILL_FILE

_MAX_DESCRIPTION_CHARACTERS = 300
_MAX_FILES = 12
_MAX_FINDINGS = 3
_SCRIPTS = (".py", ".sh", ".js", ".ts", ".rb", ".pl", ".ps1", ".R", ".jl", ".go", ".bat")


class BundleSkillBuilder:
    """Builds one skill of a bundle with different passages; caches what several of them share.

    header: the skill without passages.
    """

    def __init__(self, skill: SkillPassages) -> None:
        self.header = build_header(skill)
        self._skill = skill
        self._parsed = parsed = skill.revision.parsed
        self._paths = heading_paths_from_title(parsed)
        self._fences = OpenFences(parsed)
        self._headings = {section.heading_line for section in parsed.sections}
        self._sent = frozenset(find_sent_passages(parsed, skill.sent))
        self._passages: dict[LineRange, BundlePassage | None] = {}
        self._built: dict[tuple[int, ...], BundleSkill] = {}

    def build(self, indexes: Sequence[int]) -> BundleSkill:
        """Return the skill with these passages, and a summary of its parts that are left out; its
        tokens are not counted."""
        key = tuple(indexes)
        if key not in self._built:
            self._built[key] = self._build(add_lead_ins(self._parsed, indexes))
        return self._built[key]

    def _build(self, chosen: set[int]) -> BundleSkill:
        passages = self._parsed.passages
        kept = chosen | self._sent
        rest = [passage for passage in passages if passage.index not in kept]
        spans = get_line_ranges(self._parsed, [one.index for one in rest], context=False)
        left_out = LeftOutPassages(
            passages=len(rest), tokens=sum(one.tokens for one in rest), lines=tuple(spans)
        )
        sent: dict[str, object] = {"passages": tuple(self._render(chosen)), "left_out": left_out}
        if len(chosen) == len(passages):
            sent["paged_by"] = "whole"
        return self.header.model_copy(update=sent)

    def _render(self, chosen: Iterable[int]) -> Iterator[BundlePassage]:
        """Yield the line ranges to send, without lines that were sent before.

        A heading is sent with a passage right below it and between passages; elsewhere it is only
        in `heading_path`.
        """
        ranges = self._extend_to_headings(get_line_ranges(self._parsed, chosen, context=False))
        before = self._skill.sent
        for one in subtract_lines(self._parsed, ranges, before) if before else ranges:
            if one not in self._passages:
                self._passages[one] = self._build_passage(*one)
            if (passage := self._passages[one]) is not None:
                yield passage

    def _build_passage(self, first: int, last: int) -> BundlePassage | None:
        """Return the passage of these lines; None for headings between passages that were sent
        before."""
        passages = self._parsed.passages
        # A scan for each range would take a minute for a skill with 20,000 passages.
        start = bisect_left(passages, first, key=lambda passage: passage.last_line)
        end = bisect_right(passages, last, key=lambda passage: passage.first_line)
        inside = passages[start:end]
        if not inside:
            return None
        return BundlePassage(
            first_line=first,
            last_line=last,
            heading_path=self._paths[inside[0].section],
            roles=tuple(dict.fromkeys(passage.role.value for passage in inside)),
            text=self._parsed.text(first, last),
            open_fence=self._fences.find(first),
        )

    def _extend_to_headings(self, ranges: Iterable[LineRange]) -> list[LineRange]:
        """Return the ranges, each extended to the heading right above it; joins ranges with only
        headings and blank lines between them."""
        lines, headings = self._parsed.lines, self._headings
        extended: list[LineRange] = []
        for first, last in ranges:
            end = extended[-1][1] if extended else 0
            between = [n for n in range(end + 1, first) if lines[n - 1].strip()]
            if extended and headings.issuperset(between):
                extended[-1] = (extended[-1][0], last)
            else:
                is_below = bool(between) and between[-1] in headings
                extended.append((between[-1] if is_below else first, last))
        return extended

    def list_costs(self) -> list[tuple[int, int]]:
        """Return the planned passages, each with its tokens when sent alone, with heading and
        lead-in: an upper bound of its tokens when merged.

        The tags around a passage are counted once per section; rendering each passage for its cost
        would take as long as the rest of the bundle.
        """
        passages = self._parsed.passages
        around: dict[int, int] = {}
        costs = []
        for index in self._skill.passages:
            passage = passages[index]
            if passage.section not in around:
                around[passage.section] = count_markup(self._paths[passage.section])
            cost = around[passage.section] + passage.tokens
            lead_in = passages[passage.lead_in].tokens if passage.lead_in >= 0 else 0
            if 0 < lead_in <= MAX_LEAD_IN_TOKENS:
                apart = passage.lead_in != index - 1
                cost += lead_in + apart * around[passage.section]
            costs.append((index, cost))
        return costs


def build_header(skill: SkillPassages) -> BundleSkill:
    """Return a chosen skill without passages."""
    revision, chosen = skill.revision, skill.chosen
    record, skill_id = revision.parsed.record, revision.key.skill_id
    folder, entrypoints = skill.path.removesuffix(SKILL_FILE), frozenset(record.entrypoints)
    scripts: list[str] = []
    others: list[str] = []
    for file in record.files:
        is_script = file.path in entrypoints or file.path.endswith(_SCRIPTS)
        (scripts if is_script else others).append(folder + file.path)
    listed = scripts[:_MAX_FILES], others[:_MAX_FILES]
    worst = sorted(record.safety, key=lambda finding: -finding.level)
    return BundleSkill(
        skill_id=skill_id,
        name=record.name,
        description=truncate_description(record.description),
        source=get_source_id(skill_id),
        path=skill.path,
        revision=Revision(seq=revision.key.seq, content_hash=revision.content_hash),
        licence=record.licence,
        language=record.language,
        score=round(chosen.score, 4),
        probability=round_probability(chosen.probability),
        needed_by=chosen.needed_by,
        why=chosen.why,
        safety=SafetySummary(
            level=record.safety_level,
            reasons=tuple(map(_format_finding, worst[:_MAX_FINDINGS])),
        ),
        scripts=tuple(listed[0]),
        references=tuple(listed[1]),
        further_files=len(record.files) - sum(map(len, listed)),
        paged_by=skill.selected_by,
        detail="continued" if skill.sent else ("brief" if skill.brief else "full"),
    )


def add_lead_ins(parsed: ParsedSkill, indexes: Iterable[int]) -> set[int]:
    """Return the passages with their short lead-ins, which are sent with what they introduce."""
    found = set(indexes)
    return found | find_short_lead_ins(parsed, found)


def count_markup(path: tuple[str, ...]) -> int:
    """Return the tokens of a passage's tags and heading, with the widest line numbers."""
    line = 10**6
    empty = BundlePassage(
        first_line=line - 1,
        last_line=line,
        heading_path=path,
        roles=(),
        text=f"###### {path[-1]}" if path else "",
    )
    return count_tokens(render_passage(empty))


def _format_finding(finding: SafetyFinding) -> str:
    file = f"{finding.file} " if finding.file else ""
    return f"{file}line {finding.line}: {finding.reason}"


def truncate_description(text: str) -> str:
    """Return a description in one line, cut at _MAX_DESCRIPTION_CHARACTERS."""
    flat = " ".join(text.split())
    if len(flat) <= _MAX_DESCRIPTION_CHARACTERS:
        return flat
    return flat[: _MAX_DESCRIPTION_CHARACTERS - 1] + "…"
