"""Links from the verdicts of a language model: a function of the library and the stored verdicts.

A verdict holds for two contents. It gives a link while both are published in the skills that had
them when the model was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph.links.linker import VERDICT_EVIDENCE
from graph.protocol import Catalog
from graph.records import Link, LinkType, merge_duplicate_links
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs.protocol import PairVerdict, SkillPairStore
from tasks.refine.linking.link_origin import rejection_kind

WEIGHTS = {
    LinkType.DEPENDENCY: 0.88,
    LinkType.WORKFLOW: 0.75,
    LinkType.CONFLICT: 0.95,
    LinkType.ALTERNATIVE: 0.7,
    LinkType.SEMANTIC: 0.3,
}
"""Weights of links by verdicts, below those of declared links: only declared dependencies are added
to bundles. Alternatives are below the weight of copies, of which a bundle takes one
(`tasks.query.choose`)."""

_OWNED_BY_SOURCE = (LinkType.DEPENDENCY, LinkType.WORKFLOW)


class StoredVerdictLinks:
    """Reads the links from stored verdicts of one model and version; a `VerdictLinks`."""

    def __init__(self, catalog: Catalog, pairs: SkillPairStore, kind: RefinementKind) -> None:
        self._catalog = catalog
        self._pairs = pairs
        self._kind = kind

    def __call__(self, skill_ids: Sequence[str]) -> Mapping[str, Sequence[Link]]:
        """Return, by skill, the links that start or end at it."""
        asked = self._read_hashes(skill_ids)
        verdicts = self._find_verdicts(sorted(set(asked.values())))
        ends = {end for found in verdicts.values() for one in found for end in one.skill_ids}
        hashes = asked | self._read_hashes(sorted(ends - asked.keys()))
        links: dict[str, list[Link]] = {skill_id: [] for skill_id in skill_ids}
        for skill_id, content_hash in asked.items():
            for verdict in verdicts[content_hash]:
                if skill_id in verdict.skill_ids and _is_present(verdict, hashes):
                    links[skill_id].append(build_link(verdict, self._kind.model))
        return {skill_id: merge_duplicate_links(found) for skill_id, found in links.items()}

    def _find_verdicts(self, hashes: Sequence[str]) -> dict[str, list[PairVerdict]]:
        by_texts = self._pairs.find_links(self._kind, hashes)
        by_queries = self._pairs.find_links(rejection_kind(self._kind), hashes)
        return {one: [*by_texts[one], *by_queries[one]] for one in hashes}

    def _read_hashes(self, skill_ids: Sequence[str]) -> dict[str, str]:
        """Return the content hashes of the given skills that are published."""
        entries = self._catalog.get_entries(skill_ids) if skill_ids else []
        return {entry.skill_id: entry.content_hash for entry in entries if entry.seq}


def build_link(verdict: PairVerdict, model: str) -> Link:
    """Return the link of a verdict with a link.

    A dependency or a workflow is owned by the skill where it starts. Other types have no direction:
    the skill whose id sorts first owns the link, and the link ends there.
    """
    kind = LinkType(verdict.type)
    ends = verdict.skill_ids if verdict.first else verdict.skill_ids[::-1]
    evidence = f"{VERDICT_EVIDENCE}{model}: {verdict.evidence}"
    if kind in _OWNED_BY_SOURCE:
        return Link(ends[0], *ends, kind, WEIGHTS[kind], evidence)
    target, source = sorted(ends)
    return Link(target, source, target, kind, WEIGHTS[kind], evidence)


def _is_present(verdict: PairVerdict, hashes: Mapping[str, str]) -> bool:
    return all(
        hashes.get(skill_id) == content_hash
        for skill_id, content_hash in zip(verdict.skill_ids, verdict.hashes, strict=True)
    )
