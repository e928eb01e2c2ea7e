"""The neighbourhood of a skill or of an answer, and the walk of an answer, as JSON data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from config.errors import TransientError, UsageError
from config.settings import DiffusionSettings
from graph.neighbourhood import Neighbourhood, find_neighbourhood, link_skills
from graph.pagerank import DiffusionStep, personalised_pagerank
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, LinkType
from tasks.journal.protocol import Job
from workers.library.entry_policy import EntryPolicy, PolicyResult
from workers.library.skill_data import link_data
from workers.library.skill_reader import require_entry

_DIGITS = 5


class GraphReader:
    """Describes parts of a graph that one reader may see.

    policy: of the library. include_withheld: if False, neighbours that the policy withholds are
    left out, as if they did not exist.
    """

    def __init__(self, graph: SkillGraph, policy: EntryPolicy, *, include_withheld: bool) -> None:
        self._graph = graph
        self._policy = policy
        self._include_withheld = include_withheld
        self._entries: dict[str, CatalogEntry] = {}
        self._policy_results: dict[str, PolicyResult] = {}

    def describe_neighbourhood(
        self, starts: Sequence[str], types: Collection[LinkType], depth: int, limit: int
    ) -> dict[str, Any]:
        """Return the skills around the starts, nearest first, and the links among them.

        A start that may not be shown is left out.
        """
        found = find_neighbourhood(self._graph, self._select, starts, types, depth, limit)
        cuts = [
            f"{limit} skills are shown: the nearest, and of those equally near the ones with the "
            "strongest links"
        ]
        return {
            "skills": [self.describe_skill(*one) for one in found.distances.items()],
            "links": [link_data(link) for link in found.links],
            "cut": (cuts if found.skills_cut else []) + _name_link_cuts(found),
        }

    def describe_walk(self, job: Job, settings: DiffusionSettings, limit: int) -> dict[str, Any]:
        """Return the diffusion of an answered query, move by move, over the current links.

        Raises UsageError for a query without a diffusion, TransientError for a query
        that is not answered yet.
        """
        explained = _get_explanation(job)
        seeds, epoch = explained["diffusion"]["seeds"], explained["diffusion"]["epoch"]
        steps: list[DiffusionStep] = []
        result = personalised_pagerank(
            seeds,
            lambda ids: self._graph.get_adjacency(ids, settings.fan_out),
            settings,
            steps.append,
        )
        mass = [_add_up(step) for step in steps]
        most: dict[str, float] = {}
        for one in mass:
            most |= {name: max(value, most.get(name, 0.0)) for name, value in one.items()}
        allowed = self._select(sorted(most))
        reached = sorted(allowed, key=lambda name: (-most[name], name))
        shown = sorted(reached[:limit], key=lambda name: (name not in seeds, -most[name], name))
        found = link_skills(self._graph, self._select, shown, shown, tuple(LinkType))
        added = {one["skill_id"]: one["scores"].get("diffusion") for one in explained["candidates"]}
        cuts = [f"{limit} of {len(reached):,} skills are shown: those that had the most mass"]
        return {
            "skills": [
                self.describe_skill(name, 0 if name in seeds else None)
                | {
                    "seed": round(seeds.get(name, 0.0), _DIGITS),
                    "mass": [round(one.get(name, 0.0), _DIGITS) for one in mass],
                    "arrived": round(result.inflow.get(name, 0.0), _DIGITS),
                    "added": added.get(name),
                }
                for name in shown
            ],
            "links": [link_data(link) for link in found.links],
            "cut": (cuts if len(reached) > limit else []) + _name_link_cuts(found),
            "moves": len(steps) - 1,
            "restart": settings.restart,
            "elsewhere": [
                round(max(0.0, 1.0 - sum(one.get(name, 0.0) for name in shown)), _DIGITS)
                for one in mass
            ],
            "changed": self._list_changed(epoch, most),
            "reached": len(reached),
        }

    def describe_skill(self, skill_id: str, distance: int | None = 0) -> dict[str, Any]:
        """Return a skill of a graph; raises NotFoundError if it does not exist."""
        if skill_id not in self._entries:
            self._remember([require_entry(self._graph, skill_id)])
        entry, withheld = self._entries[skill_id], self._policy_results[skill_id].withheld
        is_shown = withheld is None or self._include_withheld
        return {
            "skill_id": skill_id,
            "name": entry.name,
            "description": entry.description if is_shown else "",
            "state": entry.state.value,
            "withheld": withheld,
            "distance": distance,
        }

    def _list_changed(self, epoch: int, skill_ids: Collection[str]) -> list[str]:
        """Return the given skills that changed after an epoch, or whose links did."""
        changes = self._graph.get_changes_since(epoch)
        changed = changes.relinked.union(changes.pointers).intersection(skill_ids)
        return sorted(self._select(sorted(changed)))

    def _select(self, skill_ids: Sequence[str]) -> set[str]:
        """Return the given skills that the catalog has and the reader may see."""
        missing = [one for one in skill_ids if one not in self._entries]
        if missing:
            self._remember(self._graph.get_entries(missing))
        return {
            one
            for one in skill_ids
            if one in self._entries
            and (self._include_withheld or self._policy_results[one].violation is None)
        }

    def _remember(self, entries: Sequence[CatalogEntry]) -> None:
        self._entries |= {one.skill_id: one for one in entries}
        self._policy_results |= self._policy.judge(entries)


def _get_explanation(job: Job) -> dict[str, Any]:
    """Return the explanation of an answered query with a diffusion; raises an error without one."""
    if job.state == "accepted":
        raise TransientError(f"query {job.id} is not answered yet; try again in a moment")
    if job.outcome is None:
        raise UsageError(f"query {job.id} has no answer: it is {job.state}")
    explained: dict[str, Any] | None = job.outcome.get("explain")
    if explained is None:
        raise UsageError(
            f"query {job.id} was asked without `explain`, which records where its walk starts; "
            "ask it again with `explain`"
        )
    if "diffusion" not in explained:
        raise UsageError(
            f"query {job.id} followed no links: its stage `diffusion` was left out, or it has too "
            "few candidates"
        )
    return explained


def _add_up(step: DiffusionStep) -> dict[str, float]:
    """Return all mass at each skill, settled and moving."""
    mass = dict(step.settled)
    for name, moving in step.moving.items():
        mass[name] = mass.get(name, 0.0) + moving
    return mass


def _name_link_cuts(found: Neighbourhood) -> list[str]:
    return ["Lighter links are left out"] if found.links_cut else []
