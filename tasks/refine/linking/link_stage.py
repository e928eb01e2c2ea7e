"""The links stage: a language model confirms typed links inside a bounded pool (Graph of Skills
§3.2, App. B).

Verdicts are stored by pair of contents, so that the model is asked about a pair once, from the side
of the skill that is refined first, and after an edit only about changed contents. They become links
when skills are linked (`tasks.refine.linking.verdict_links`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from config.errors import MisconfiguredError
from config.language_model_settings import NO_MODEL, ModelStage
from search.protocol import StoredRevision
from tasks.ingest.next_tasks import send_link
from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.language_model.skill_pairs.protocol import ContentPair, SkillPairStore, order_pair
from tasks.refine.linking.candidates import find_candidates, read_skill_text
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.prompt import VERSION, LinksAnswer, build_prompt
from tasks.refine.linking.read_verdicts import read_verdicts
from tasks.refine.stage import RefineContext, RefineStage
from tasks.services import Services


class LinkStage(RefineStage):
    """Asks about all unanswered pairs of a skill at once, and stores a verdict for each."""

    name: ModelStage = "links"
    version = VERSION

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        others = list(self._find_unknown(context, revision).values())
        return [build_prompt(read_skill_text(revision), others).request] if others else []

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        """Return a refinement that counts the pairs in question by the type of their links; `void`
        has the reasons of void verdicts."""
        asker, reason = revision.content_hash, ""
        others = [
            other
            for pair, other in self._find_unknown(context, revision).items()
            if context.askers.setdefault(pair, asker) == asker
        ]
        if not others:
            return {"asked": 0}
        prompt = build_prompt(read_skill_text(revision), others)
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

    def _find_unknown(
        self, context: RefineContext, revision: StoredRevision
    ) -> Mapping[ContentPair, SkillText]:
        """Return the candidates of a skill about which the model has given no verdict, by pair."""
        services = context.services
        limit = services.settings.language_model.link_candidates
        candidates = {
            order_pair(revision.content_hash, one.content_hash): read_skill_text(one)
            for one in find_candidates(services, revision, limit)
        }
        known = get_pairs(services).find_known(context.kind(self), list(candidates))
        return {pair: other for pair, other in candidates.items() if pair not in known}


def get_pairs(services: Services) -> SkillPairStore:
    """Return the store of pairs; raises MisconfiguredError without one."""
    if services.skill_pairs is None:
        raise MisconfiguredError(NO_MODEL)
    return services.skill_pairs
