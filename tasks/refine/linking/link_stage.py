"""The links stage: a language model confirms typed links inside a bounded pool (Graph of Skills
§3.2, App. B).

Verdicts are stored by pair of contents, so that the model is asked about a pair once, from one
side, and after an edit only about changed contents. They become links when skills are linked
(`tasks.refine.linking.verdict_links`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from config.errors import MisconfiguredError
from config.language_model_settings import NO_MODEL, ModelStage
from search.protocol import StoredRevision
from tasks.ingest.next_tasks import send_link
from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.language_model.skill_pairs.protocol import AskedPair, SkillPairStore
from tasks.refine.linking.candidates import find_candidates, read_published, read_skill_text
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.prompt import VERSION, LinkPrompt, LinksAnswer, build_prompt
from tasks.refine.linking.read_verdicts import read_verdicts, to_pair
from tasks.refine.stage import RefineContext, RefineStage
from tasks.services import Services


class LinkStage(RefineStage):
    """Asks about all unanswered pairs of a skill at once, and stores a verdict for each."""

    name: ModelStage = "links"
    version = VERSION

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        unknown = self._find_unknown(context, revision)
        return [build_prompt(read_skill_text(revision), unknown).request] if unknown else []

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        """Return a refinement that counts the pairs in question by the type of their links; `void`
        has the reasons of void verdicts."""
        prompt = self._claim_prompt(context, revision)
        if prompt is None:
            return {"asked": 0}
        reason = ""
        try:
            answer = context.model.complete(prompt.request, LinksAnswer, prompt.check).answer
        except InvalidAnswerError as error:
            # Stored as pairs without a link: this model would give the same answer again.
            answer, reason = LinksAnswer(relations=[]), str(error)
        verdicts, faults = read_verdicts(prompt, answer)
        get_pairs(context.services).save_verdicts(context.kind(self), verdicts)
        counts = Counter(verdict.type for verdict in verdicts if verdict.type)
        found = {"asked": len(verdicts), "links": dict(sorted(counts.items()))}
        problems = {"void": faults, "invalid": reason}
        return found | {name: value for name, value in problems.items() if value}

    @override
    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        """Mark for linking the skills whose links change by the verdicts about this skill."""
        services = context.services
        found = get_pairs(services).find_links(context.kind(self), [revision.content_hash])
        verdicts = found[revision.content_hash]
        if verdicts:
            ends = {end for verdict in verdicts for end in verdict.skill_ids}
            services.graph.mark_for_linking(sorted(ends | {revision.key.skill_id}))
            send_link(services)

    def _claim_prompt(self, context: RefineContext, revision: StoredRevision) -> LinkPrompt | None:
        """Return the prompt about the pairs that are reserved for this skill; None if there is
        none.

        Pairs that an earlier run reserved without getting a verdict come alone, since the answer
        may be stored already, unless some of the other skills have changed.
        """
        services, kind, skill = context.services, context.kind(self), read_skill_text(revision)
        pairs, asker = get_pairs(services), revision.content_hash
        claimed = pairs.list_claimed(kind, asker)
        others = _read_others(services, claimed, asker)
        if not claimed or len(others) < len(claimed):
            unknown = self._find_unknown(context, revision)
            pairs.claim_pairs(kind, asker, [to_pair(skill, other) for other in unknown])
            others = _read_others(services, pairs.list_claimed(kind, asker), asker)
        return build_prompt(skill, others) if others else None

    def _find_unknown(self, context: RefineContext, revision: StoredRevision) -> list[SkillText]:
        """Return the candidates of a skill with which it has not been compared."""
        services, skill = context.services, read_skill_text(revision)
        limit = services.settings.language_model.link_candidates
        found = find_candidates(services, revision, limit)
        candidates = {to_pair(skill, one).hashes: one for one in map(read_skill_text, found)}
        known = get_pairs(services).find_known(context.kind(self), list(candidates))
        return [other for pair, other in candidates.items() if pair not in known]


def _read_others(services: Services, claimed: Sequence[AskedPair], asker: str) -> list[SkillText]:
    """Return the other skills of these pairs, without those that have other content by now."""
    wanted = dict.fromkeys(
        end for pair in claimed for end in zip(pair.skill_ids, pair.hashes, strict=True)
    )
    ids = dict.fromkeys(skill_id for skill_id, content_hash in wanted if content_hash != asker)
    texts = map(read_skill_text, read_published(services, list(ids)))
    return [one for one in texts if (one.skill_id, one.content_hash) in wanted]


def get_pairs(services: Services) -> SkillPairStore:
    """Return the store of pairs; raises MisconfiguredError without one."""
    if services.skill_pairs is None:
        raise MisconfiguredError(NO_MODEL)
    return services.skill_pairs
