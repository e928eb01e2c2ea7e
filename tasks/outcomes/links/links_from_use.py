"""Links from use: skills that helped together, conflicts, and changed weights of other links.

All links are a function of the stored outcomes, the contributors of sources and the settings: the
order of arrival of outcomes changes nothing, and deleting outcomes restores the links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from config.learning_settings import LearningSettings
from graph.links.audiences import ONE_AUDIENCE, Audiences
from graph.links.learned_links import LEARNED_EVIDENCE, LearnedLinks, adapt_weight
from graph.links.link_rules import DECLARED_WEIGHT
from graph.protocol import Catalog
from graph.records import Link, LinkType
from skills.outcomes.counting import CountingRules, Tally
from skills.outcomes.pair_evidence import PairEvidence, SkillTotals, weigh_pair
from skills.outcomes.weights import TRUSTED_OWNERS
from tasks.outcomes.links.report_index import Refreshed, ReportIndex
from tasks.outcomes.protocol import OutcomeStore

MAX_COMPANIONS = 10
"""Maximum links of the type used_together that one skill owns, per audience."""

MIN_COMPANION_WEIGHT = 0.1
"""Minimum weight of a link of the type used_together."""

CONFLICT_WEIGHT = 0.9
"""Weight of a learned conflict, below that of a declared one."""

_CONFIRMED_DEPENDENCY_WEIGHT = 0.99
"""Weight that a dependency approaches when outcomes confirm it, below DECLARED_WEIGHT."""

_KEPT_FACTOR = 0.5
"""Minimum factor by outcomes with which a declared dependency stays unchanged."""

_VERSION = 2
_WEIGHT_DECIMALS = 6
_CACHED_PAIRS = 50_000


class LinksFromUse(LearnedLinks):
    """Learned links of one store of outcomes; used by one thread at a time."""

    def __init__(self, store: OutcomeStore, catalog: Catalog, settings: LearningSettings) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self.index = ReportIndex(store, settings.past_tasks)
        self._rules = CountingRules()
        self._audiences = ONE_AUDIENCE
        self._companions: dict[str, dict[str, Link]] = {}
        self._totals: dict[str, SkillTotals] = {}
        self._pairs: dict[tuple[str, str], PairEvidence] = {}

    def refresh(self) -> Refreshed:
        """Read what changed in the store; returns the skills whose learned links may differ.

        After an error, the next call reads the store from the start.
        """
        # Read before the index, which returns each change once.
        rules, known = self._read_rules(), self._rules
        audiences = Audiences(self._catalog.read_access().groups)
        try:
            refreshed = self.index.refresh()
        except BaseException:
            # Some changes may be in the index, and the skills that they affect are unknown.
            self.index.clear()
            self._companions, self._totals, self._pairs = {}, {}, {}
            raise
        touched = refreshed.skill_ids
        if rules != known or audiences != self._audiences:
            self._rules, self._audiences = rules, audiences
            touched.update(self.index.skill_ids)
        for skill_id in touched:
            self._companions.pop(skill_id, None)
            self._totals.pop(skill_id, None)
        if touched:
            self._pairs = {
                pair: found for pair, found in self._pairs.items() if touched.isdisjoint(pair)
            }
        return refreshed

    def describe_origin(self) -> str:
        """Return what links are learned from apart from outcomes, as text without spaces: two
        processes with the same text learn the same links."""
        rules = self._read_rules()
        parts = [
            _VERSION,
            sorted(rules.trusted),
            rules.least_owners,
            rules.daily_tasks,
            sorted((source, sorted(owners)) for source, owners in rules.contributors.items()),
            self._settings.past_tasks,
        ]
        audiences = Audiences(self._catalog.read_access().groups).digest()
        parts += [audiences] if audiences else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _read_rules(self) -> CountingRules:
        settings = self._settings
        return CountingRules(
            TRUSTED_OWNERS.union(settings.trusted_owners),
            settings.least_owners,
            settings.daily_tasks,
            self._store.list_contributors(),
        )

    # -- learned links
    def find_links(self, skill_ids: Sequence[str]) -> Mapping[str, Sequence[Link]]:
        """See `LearnedLinks`.

        Companions of a skill are the MAX_COMPANIONS skills of each audience with the highest
        weights, ties by skill_id, published or not.
        """
        found = {skill_id: self._find_all(skill_id) for skill_id in skill_ids}
        ends = sorted({end for links in found.values() for link in links for end in link.ends})
        entries = self._catalog.get_entries(ends) if ends else []
        published = {entry.skill_id for entry in entries if entry.seq}
        return {
            skill_id: [link for link in links if published.issuperset(link.ends)]
            for skill_id, links in found.items()
        }

    def _find_all(self, skill_id: str) -> list[Link]:
        links = list(self._get_companions(skill_id).values())
        for other in sorted(self._get_partners(skill_id)):
            listed = self._get_companions(other).get(skill_id)
            links += [listed] if listed else []
            conflict = self._get_conflict(skill_id, other)
            links += [conflict] if conflict else []
        return links

    def _get_companions(self, skill_id: str) -> dict[str, Link]:
        """Return links to the skills that most often help together with this skill, by skill."""
        if skill_id not in self._companions:
            found = [self._to_companion(skill_id, other) for other in self._get_partners(skill_id)]
            heavy = [link for link in found if link.weight >= MIN_COMPANION_WEIGHT]
            heavy.sort(key=lambda link: (-link.weight, link.target))
            self._companions[skill_id] = {
                heavy[place].target: heavy[place]
                for members in self._audiences.split([link.target for link in heavy])
                for place in members[:MAX_COMPANIONS]
            }
        return self._companions[skill_id]

    def _to_companion(self, skill_id: str, other: str) -> Link:
        pair = self._weigh(skill_id, other)
        evidence = f"{LEARNED_EVIDENCE}helped together in {_describe(pair.together)}"
        if pair.other_rejected.tasks:
            evidence += f"; {other} rejected with it in {_describe(pair.other_rejected)}"
        weight = pair.companion_weight
        return Link(skill_id, skill_id, other, LinkType.USED_TOGETHER, weight, evidence)

    def _get_conflict(self, skill_id: str, other: str) -> Link | None:
        """Return the conflict of two skills; its owner is the skill whose id sorts first."""
        one, two = sorted((skill_id, other))
        pair = self._weigh(one, two)
        if pair.is_incompatible:
            reason = f"rejected as incompatible in {_describe(pair.incompatible)}"
        elif pair.fails_together:
            reason = (
                f"failed together in {_describe(pair.failed)}, though each helped without the "
                f"other in {pair.one_alone[0]} and {pair.other_alone[0]}"
            )
        else:
            return None
        if pair.together.tasks:
            reason += f"; helped together in {pair.together.tasks}"
        evidence = f"{LEARNED_EVIDENCE}{reason}"
        return Link(one, one, two, LinkType.CONFLICT, CONFLICT_WEIGHT, evidence)

    def _get_partners(self, skill_id: str) -> set[str]:
        """Return the skills that some report names with this one."""
        found: set[str] = set()
        for report in self.index.get_reports(skill_id):
            found |= report.skill_ids
        return found - {skill_id}

    def _weigh(self, one: str, other: str) -> PairEvidence:
        if (one, other) not in self._pairs:
            if len(self._pairs) >= _CACHED_PAIRS:
                self._pairs.clear()
            totals = (self._get_totals(one), self._get_totals(other))
            shared = self.index.get_reports(one, other)
            self._pairs[one, other] = weigh_pair((one, other), totals, shared, self._rules)
        return self._pairs[one, other]

    def _get_totals(self, skill_id: str) -> SkillTotals:
        if skill_id not in self._totals:
            reports = self.index.get_reports(skill_id)
            self._totals[skill_id] = SkillTotals(skill_id, reports, self._rules)
        return self._totals[skill_id]

    # -- adapted links
    def adapt(self, link: Link) -> Link:
        """See `LearnedLinks`. Conflicts are not adapted: a person can dismiss them."""
        if link.type in (LinkType.CONFLICT, LinkType.USED_TOGETHER):
            return link
        if link.source not in self.index or link.target not in self.index:
            return link
        pair = self._weigh(link.source, link.target)
        confirming, against = pair.together, pair.other_rejected
        words = ("helped together", "rejected with it")
        if link.type is LinkType.ALTERNATIVE:
            confirming, against = pair.same_job, pair.together
            words = ("named as doing the same", "helped together")
        elif link.type is not LinkType.DEPENDENCY:
            against = _add(pair.other_rejected, pair.one_rejected)
        factor = pair.rejection_factor(against.weight, confirming.weight)
        if link.type is LinkType.DEPENDENCY:
            # Rounded, so that a weight that was adapted and divided again gives the same factor.
            weight = round(link.weight, _WEIGHT_DECIMALS)
            if weight >= DECLARED_WEIGHT and factor >= _KEPT_FACTOR:
                return link
            lacking = max(_CONFIRMED_DEPENDENCY_WEIGHT - weight, 0.0)
            factor *= 1.0 + lacking * pair.confirmed_share() / weight
        parts = [
            f"{word} in {_describe(tally)}"
            for word, tally in zip(words, (confirming, against), strict=True)
            if tally.tasks
        ]
        return adapt_weight(link, factor, ", ".join(parts))


def _add(one: Tally, other: Tally) -> Tally:
    owners = max(one.owners, other.owners)
    return Tally(one.weight + other.weight, one.tasks + other.tasks, owners)


def _describe(tally: Tally) -> str:
    tasks = f"{tally.tasks} {'task' if tally.tasks == 1 else 'tasks'}"
    return f"{tasks} of {tally.owners} {'owner' if tally.owners == 1 else 'owners'}"
