"""Conversion of the model's answer to verdicts about pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from graph.records import LinkType
from tasks.language_model.prompt_injection import find_prompt_injection
from tasks.language_model.skill_pairs.protocol import PairVerdict
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.prompt import CandidateRelation, LinkPrompt, LinksAnswer

RELATIONS: Mapping[str, tuple[LinkType, bool]] = {
    "needs": (LinkType.DEPENDENCY, True),
    "needed_by": (LinkType.DEPENDENCY, False),
    "before": (LinkType.WORKFLOW, True),
    "after": (LinkType.WORKFLOW, False),
    "same_job": (LinkType.ALTERNATIVE, True),
    "complement": (LinkType.SEMANTIC, True),
    "conflict": (LinkType.CONFLICT, True),
}
"""The link of each relation, and whether it leads from the skill to the candidate."""

_QUOTED_CHARACTERS = 160


def read_verdicts(
    prompt: LinkPrompt, answer: LinksAnswer
) -> tuple[list[PairVerdict], dict[str, int]]:
    """Return a verdict for every candidate of a prompt, without a link if the model named none or
    its verdict is void; and how often each fault made a verdict void."""
    said = {one.candidate: one for one in answer.relations}
    verdicts, faults = [], Counter[str]()
    for number, other in enumerate(prompt.candidates, 1):
        relation = said.get(number)
        fault = prompt.find_fault(relation) or _find_injection(prompt, relation) if relation else ""
        if fault:
            faults[fault] += 1
            relation = None
        verdicts.append(_to_verdict(prompt, other, relation))
    return verdicts, dict(sorted(faults.items()))


def _find_injection(prompt: LinkPrompt, relation: CandidateRelation) -> str:
    """Return why a conflict is void, "" if it is valid. A conflict would keep a rival out of
    bundles, and a text that gives orders to its reader may have asked for it."""
    if relation.relation != "conflict":
        return ""
    shown = (prompt.skill_lines, prompt.candidate_lines[relation.candidate - 1])
    texts = [line for lines in shown for line in lines.values()]
    return "a text gives orders to the model" if find_prompt_injection(*texts) else ""


def _to_verdict(
    prompt: LinkPrompt, other: SkillText, relation: CandidateRelation | None
) -> PairVerdict:
    skill = prompt.skill
    ends = sorted([skill, other], key=lambda one: one.content_hash)
    hashes = (ends[0].content_hash, ends[1].content_hash)
    skill_ids = (ends[0].skill_id, ends[1].skill_id)
    if relation is None:
        return PairVerdict(hashes, skill_ids)
    kind, forward = RELATIONS[relation.relation]
    shown = prompt.candidate_lines[relation.candidate - 1]
    parts = [
        _cite(skill, relation.skill_lines, prompt.skill_lines),
        _cite(other, relation.candidate_lines, shown),
    ]
    evidence = "; ".join(part for part in parts if part)
    in_order = ends[0] is skill
    return PairVerdict(hashes, skill_ids, kind.value, forward is in_order, evidence)


def _cite(skill: SkillText, lines: Iterable[int], shown: Mapping[int, str]) -> str:
    """Return name, numbers, and the beginning of the first line of text, "" without lines."""
    numbers = sorted(set(lines))
    if not numbers:
        return ""
    word = "line" if len(numbers) == 1 else "lines"
    body = [n for n in numbers if n != skill.description_line and not shown[n].startswith("#")]
    text = " ".join(shown[(body or numbers)[0]].split())[:_QUOTED_CHARACTERS]
    return f"{skill.name}, {word} {', '.join(map(str, numbers))}: {text}"
