"""Origin of links apart from the library, and new linking when it has changed.

Links are a function of the library, the settings and the stored verdicts. A setting that disables
verdicts, or another model, changes links of skills that have not changed.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from config.settings import Settings
from graph.links.audiences import Audiences
from graph.links.linker import is_from_verdict
from graph.records import LinkInput
from skills.batches import batches
from tasks.language_model.answer_store import RefinementKind
from tasks.services import Services

log = structlog.get_logger()

LINKS_VERSION = 1
"""Version of the prompt of the stage `links`. Defined here, so that a process without a model
imports no prompt."""

_BATCH_SKILLS = 1_000
_AUDIENCES = " audiences "


def link_kind(settings: Settings) -> RefinementKind | None:
    """Return the kind of verdicts that give links; None if the stage `links` is off."""
    model = settings.language_model
    return RefinementKind("links", model.model, LINKS_VERSION) if model.uses("links") else None


def rejection_kind(kind: RefinementKind) -> RefinementKind:
    """Return the kind of verdicts about pairs that queries compared, which differs from that of the
    stage `links`."""
    return replace(kind, version=-kind.version)


def mark_for_changed_origin(services: Services) -> int:
    """Mark the skills whose links changed because the settings or the groups of sources changed;
    returns how many.

    Costs only two reads if they have not changed since the last call.
    """
    kind, graph = link_kind(services.settings), services.graph
    verdicts = f"{kind.model} {kind.version}" if kind else ""
    audiences = Audiences(graph.read_access().groups).digest()
    origin = f"{verdicts}{_AUDIENCES}{audiences}" if audiences else verdicts
    before = graph.get_input_version(LinkInput.SETTINGS)
    if before == origin:
        return 0
    if before.partition(_AUDIENCES)[2] != audiences:
        return _mark_all(services, origin)
    contents: set[str] = set()
    if kind and services.skill_pairs:
        contents.update(services.skill_pairs.list_linked(kind))
        contents.update(services.skill_pairs.list_linked(rejection_kind(kind)))
    entries = [entry for entry in graph.get_entries() if entry.seq]
    marked = {entry.skill_id for entry in entries if entry.content_hash in contents}
    published = [entry.skill_id for entry in entries]
    for some in batches(published, _BATCH_SKILLS):
        owned = graph.get_owned_links(some)
        marked.update(owner for owner, links in owned.items() if any(map(is_from_verdict, links)))
    graph.mark_for_linking(sorted(marked))
    graph.set_input_version(LinkInput.SETTINGS, origin)
    log.info("links are computed again: verdicts changed", skills=len(marked))
    return len(marked)


def _mark_all(services: Services, origin: str) -> int:
    """Mark every skill: each may have other links when audiences change."""
    graph = services.graph
    published = [entry.skill_id for entry in graph.get_entries() if entry.seq]
    graph.mark_for_linking(published)
    graph.set_input_version(LinkInput.SETTINGS, origin)
    log.info("links are computed again: groups of sources changed", skills=len(published))
    return len(published)
