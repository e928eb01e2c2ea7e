"""End-to-end evaluation of answers: the skill and all required lines in the bundle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skills.bundle.model import Bundle
from skills.events import QueryAsked
from skills.record import ParsedSkill, RevisionKey
from tasks.services import Services
from workers.evaluation.ask import ask
from workers.evaluation.intervals import bootstrap_interval
from workers.evaluation.metrics import line_set

LineRanges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The bundle of one query.

    tokens: of its Markdown. skills: line ranges by skill id, best first; they include the headings
    that the Markdown names above a passage. described: ids of candidates that are not sent, and
    that the Markdown describes.
    """

    tokens: int
    skills: Mapping[str, LineRanges]
    described: Collection[str] = ()

    def offers(self, skill_id: str) -> bool:
        """Return whether the bundle holds or describes a skill."""
        return skill_id in self.skills or skill_id in self.described


def answer_queries(
    services: Services,
    queries: Sequence[Mapping[str, Any]],
    budget: int,
    top: int | None = None,
    without: Collection[str] = (),
) -> Iterator[tuple[str, Answer]]:
    """Run each query on the whole library; yield query id and answer.

    budget: tokens of a bundle. top: its largest number of skills, by default that of the settings.
    without: stages to switch off. Raises UsageError if a query is empty or the budget too small for
    one passage.
    """
    for query in queries:
        request = QueryAsked(task=query["query"], budget=budget, top=top, without=tuple(without))
        yield query["query_id"], _answer(services, ask(services, query["query_id"], request))


def _answer(services: Services, bundle: Bundle) -> Answer:
    revisions = services.index.get_revisions(
        [RevisionKey(skill.skill_id, skill.revision.seq) for skill in bundle.skills]
    )
    parsed = {key.skill_id: revision.parsed for key, revision in revisions.items()}
    shown = {
        skill.skill_id: _shown_lines(
            parsed[skill.skill_id], [(part.first_line, part.last_line) for part in skill.passages]
        )
        for skill in bundle.skills
    }
    described = frozenset(one.skill_id for one in bundle.left_out if one.description)
    return Answer(bundle.tokens, shown, described)


def _shown_lines(parsed: ParsedSkill, sent: Sequence[tuple[int, int]]) -> LineRanges:
    """Return the ranges that were sent, with the headings that the Markdown names above them."""
    lines = line_set(sent)
    for first, _ in sent:
        owners = [one for one in parsed.sections if one.first_line <= first <= one.last_line]
        path = owners[-1].heading_path if owners else ()
        lines |= {
            section.heading_line
            for section in parsed.sections
            if section.heading_line
            and section.first_line <= first
            and len(section.heading_path) > 1
            and section.heading_path == path[: len(section.heading_path)]
        }
    ranges: LineRanges = []
    for line in sorted(lines):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges


def answer_metrics(
    queries: Sequence[Mapping[str, Any]],
    given: Mapping[str, Answer],
    parsed: Mapping[str, ParsedSkill],
) -> dict[str, Any]:
    """Return means over queries, with 95% intervals.

    complete: share of queries whose bundle holds the skill with every required line that is not
    blank. skill: share whose bundle holds the skill. offered: share whose bundle holds or describes
    it. recall: mean share of the required lines. tokens, skills: of a bundle on average. parsed: by
    skill id.
    """
    complete, found, offered, recalled = [], [], [], []
    for query in queries:
        skill_id, answer = query["skill_id"], given[query["query_id"]]
        lines = parsed[skill_id].lines
        wanted = {line for line in line_set(query["required"]) if lines[line - 1].strip()}
        held = wanted & line_set(answer.skills.get(skill_id, ()))
        complete.append(float(skill_id in answer.skills and held == wanted))
        found.append(float(skill_id in answer.skills))
        offered.append(float(answer.offers(skill_id)))
        recalled.append(len(held) / len(wanted) if wanted else found[-1])
    samples = {"complete": complete, "skill": found, "offered": offered, "recall": recalled}
    report: dict[str, Any] = {
        name: bootstrap_interval(values)._asdict() for name, values in samples.items()
    }
    answers = [given[query["query_id"]] for query in queries]
    report["tokens"] = sum(answer.tokens for answer in answers) / len(answers)
    report["skills"] = sum(len(answer.skills) for answer in answers) / len(answers)
    return report
