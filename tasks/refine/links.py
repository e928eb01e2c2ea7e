"""The links stage: a language model confirms typed links inside a bounded pool (Graph of Skills
§3.2, App. B).

Verdicts are stored by pair of contents, so that a pair is asked about once, from one side, and an
edit asks again only about what it changed. They become links when skills are linked
(`tasks.refine.linking.verdicts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from config.errors import MisconfiguredError
from config.language_model_settings import ModelStage
from graph.records import LinkType
from search.protocol import StoredRevision
from tasks.ingest.next_tasks import send_link
from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.language_model.skill_pairs.protocol import (
    AskedPair,
    ContentPair,
    PairVerdict,
    SkillPairStore,
    order_pair,
)
from tasks.refine.linking.candidates import (
    find_candidates,
    read_published,
    read_skill_text,
)
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.prompt import (
    VERSION,
    CandidateRelation,
    LinkPrompt,
    LinksAnswer,
    build_prompt,
)
from tasks.refine.stage import RefineContext, RefineStage
from tasks.services import Services

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


class LinkStage(RefineStage):
    """Asks about all unanswered pairs of a skill at once, and stores a verdict for each."""

    @property
    @override
    def name(self) -> ModelStage:
        return "links"

    @property
    @override
    def version(self) -> int:
        return VERSION

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        unknown = self._find_unknown(context, revision)
        return [build_prompt(read_skill_text(revision), unknown).request] if unknown else []

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        """The refinement counts the pairs that were asked about, by the type of their links;
        `void` has the reasons of void verdicts."""
        prompt = self._claim_prompt(context, revision)
        if prompt is None:
            return {"asked": 0}
        try:
            answer = context.model.complete(prompt.request, LinksAnswer, prompt.check).answer
        except InvalidAnswerError as error:
            # Stored as pairs without a link: this model was asked, and would answer so again.
            answer, reason = LinksAnswer(relations=[]), str(error)
        else:
            reason = ""
        verdicts, faults = judge_answer(prompt, answer)
        get_pairs(context.services).save_verdicts(context.kind(self), verdicts)
        counts = Counter(verdict.type for verdict in verdicts if verdict.type)
        found: dict[str, Any] = {"asked": len(verdicts), "links": dict(sorted(counts.items()))}
        return (
            found | ({"void": faults} if faults else {}) | ({"invalid": reason} if reason else {})
        )

    @override
    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        """Mark the skills for linking whose links the verdicts about this one change."""
        services = context.services
        found = get_pairs(services).find_links(context.kind(self), [revision.content_hash])
        verdicts = found[revision.content_hash]
        if verdicts:
            ends = {end for verdict in verdicts for end in verdict.skill_ids}
            services.graph.mark_for_linking(sorted(ends | {revision.key.skill_id}))
            send_link(services)

    def _claim_prompt(self, context: RefineContext, revision: StoredRevision) -> LinkPrompt | None:
        """The prompt about the pairs that are reserved for this skill; None if there is none.

        What an earlier run reserved, and did not get a verdict for, comes first and alone: its
        answer may be stored already.
        """
        services, kind = context.services, context.kind(self)
        pairs, asker = get_pairs(services), revision.content_hash
        claimed = pairs.list_claimed(kind, asker)
        if not claimed:
            skill = read_skill_text(revision)
            unknown = self._find_unknown(context, revision)
            pairs.claim_pairs(kind, asker, [_ask(skill, other) for other in unknown])
            claimed = pairs.list_claimed(kind, asker)
        wanted = {
            skill_id: content_hash
            for pair in claimed
            for skill_id, content_hash in zip(pair.skill_ids, pair.hashes, strict=True)
            if content_hash != asker
        }
        texts = [read_skill_text(one) for one in read_published(services, list(wanted))]
        others = [one for one in texts if one.content_hash == wanted[one.skill_id]]
        return build_prompt(read_skill_text(revision), others) if others else None

    def _find_unknown(self, context: RefineContext, revision: StoredRevision) -> list[SkillText]:
        """The candidates of a skill with which it has not been compared."""
        services, skill = context.services, read_skill_text(revision)
        limit = services.settings.language_model.link_candidates
        found = find_candidates(services, revision, limit)
        candidates = {_pair(skill, one): one for one in map(read_skill_text, found)}
        known = get_pairs(services).find_known(context.kind(self), list(candidates))
        return [other for pair, other in candidates.items() if pair not in known]


def judge_answer(
    prompt: LinkPrompt, answer: LinksAnswer
) -> tuple[list[PairVerdict], dict[str, int]]:
    """A verdict for every candidate of a prompt, without a link where the model was silent or its
    verdict is void; and how often each fault made one void."""
    said = {one.candidate: one for one in answer.relations}
    verdicts, faults = [], Counter[str]()
    for number, other in enumerate(prompt.candidates, 1):
        relation = said.get(number)
        fault = prompt.find_fault(relation) if relation else ""
        if fault:
            faults[fault] += 1
            relation = None
        verdicts.append(_to_verdict(prompt, other, relation))
    return verdicts, dict(sorted(faults.items()))


def get_pairs(services: Services) -> SkillPairStore:
    """The store of pairs; raises MisconfiguredError where none is open."""
    if services.skill_pairs is None:
        raise MisconfiguredError("no language model is configured: see language_model.base_url")
    return services.skill_pairs


def _to_verdict(
    prompt: LinkPrompt, other: SkillText, relation: CandidateRelation | None
) -> PairVerdict:
    skill = prompt.skill
    in_order = skill.content_hash <= other.content_hash
    ids = (skill.skill_id, other.skill_id) if in_order else (other.skill_id, skill.skill_id)
    if relation is None:
        return PairVerdict(_pair(skill, other), ids)
    kind, forward = RELATIONS[relation.relation]
    shown = prompt.candidate_lines[relation.candidate - 1]
    parts = [
        _cite(skill.name, relation.skill_lines, prompt.skill_lines),
        _cite(other.name, relation.candidate_lines, shown),
    ]
    evidence = "; ".join(part for part in parts if part)
    return PairVerdict(_pair(skill, other), ids, kind.value, forward is in_order, evidence)


def _pair(skill: SkillText, other: SkillText) -> ContentPair:
    return order_pair(skill.content_hash, other.content_hash)


def _ask(skill: SkillText, other: SkillText) -> AskedPair:
    first, second = sorted([skill, other], key=lambda one: one.content_hash)
    return AskedPair((first.content_hash, second.content_hash), (first.skill_id, second.skill_id))


def _cite(name: str, lines: Iterable[int], shown: Mapping[int, str]) -> str:
    """Name, numbers, and the beginning of the first line, "" without lines."""
    numbers = sorted(set(lines))
    if not numbers:
        return ""
    word = "line" if len(numbers) == 1 else "lines"
    text = " ".join(shown[numbers[0]].split())[:_QUOTED_CHARACTERS]
    return f"{name}, {word} {', '.join(map(str, numbers))}: {text}"
