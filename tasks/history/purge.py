"""Permanent removal of every trace of a skill's text from the stores.

The order is such that an interrupted purge is finished by the next one: the pointer goes first, so
that no query chooses the skill any more, and the names of its contents are read before they are
deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from config.errors import NotFoundError, PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, Source
from search.protocol import SearchIndex
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from skills.record import RevisionKey, get_source_id
from tasks.coordination.protocol import Coordinator
from tasks.evaluations.protocol import EvaluationStore, forget_skill
from tasks.journal.protocol import Journal
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.skill_pairs.protocol import SkillPairStore
from tasks.sources.git.mirror import delete_mirror
from tasks.sources.protocol import SkillGoneError
from tasks.sources.readers import find_source, open_reader
from tasks.sources.uploads.store import UPLOAD_KIND, open_upload_store

_POLL_SECONDS = 0.05
_LOCK_SECONDS = 60.0
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PurgeStores:
    """The stores that may hold a skill's text, opened for writing.

    answers, skill_pairs: None if the deployment has no such store. drop_statistics: deletes the
    saved statistics of the library.
    """

    settings: Settings
    graph: SkillGraph
    index: SearchIndex
    history: RevisionHistory
    reviews: ReviewStore
    journal: Journal
    coordinator: Coordinator
    evaluations: EvaluationStore
    answers: AnswerStore | None
    skill_pairs: SkillPairStore | None
    drop_statistics: Callable[[], None]


def purge_skill(stores: PurgeStores, skill_id: str) -> dict[str, Any]:
    """Remove a skill, all its revisions and every trace of their text; idempotent.

    Returns the numbers of removed items: `revisions` of the index, `kept_revisions` of the history,
    `jobs` of the journal, `dead_letters`, `evaluated_prompts`, `model_answers`, `verdicts`;
    `comes_back`: why the skill may come back, "" if its source does not have it any more. Raises
    NotFoundError if there is no trace of such a skill, UsageError while its git repository has it,
    TransientError while queries that may show it run, or another process reads a file that has to
    be rewritten.
    """
    entry = next(iter(stores.graph.get_entries([skill_id])), None)
    source = find_source(stores.graph.list_sources(), get_source_id(skill_id))
    if entry is None and not stores.history.list_revisions(skill_id):
        raise NotFoundError(f"no skill {skill_id!r}; `skillbus skills list` lists them")
    if source is not None and entry is not None:
        _refuse_if_in_repository(stores, source, entry)
    end = time.monotonic() + _LOCK_SECONDS
    # The reconciler would copy revisions that it deletes into the history.
    while True:
        with stores.coordinator.try_lock("maintain") as acquired:
            if acquired:
                return _purge(stores, skill_id, source, entry)
        if time.monotonic() > end:
            raise TransientError("the reconciler is running; try again")
        time.sleep(_POLL_SECONDS)


def _purge(
    stores: PurgeStores, skill_id: str, source: Source | None, entry: CatalogEntry | None
) -> dict[str, Any]:
    graph, journal = stores.graph, stores.journal
    if entry is not None:
        graph.remove([RevisionKey(skill_id, graph.allocate_sequence(1)[0])])
    if source is not None and source.kind == UPLOAD_KIND:
        path = skill_id.partition(":")[2]
        open_upload_store(stores.settings).remove_skills(source.source_id, [path])
    _wait_for_queries(stores)
    report = {"skill_id": skill_id, **_delete_revisions(stores, skill_id)}
    stores.reviews.forget([skill_id])
    report["jobs"] = journal.forget_skill(skill_id)
    report["dead_letters"] = journal.forget_dead_letters(skill_id)
    report["evaluated_prompts"] = forget_skill(stores.evaluations, skill_id)
    stores.drop_statistics()
    if source is not None and source.kind == "git":
        delete_mirror(source.source_id, stores.settings)
    written = (stores.index, stores.history, stores.reviews, journal, stores.evaluations, graph)
    overwrite_deleted([store.overwrite_deleted for store in written])
    return report | {"comes_back": _find_in_source(stores.settings, source, skill_id)}


def overwrite_deleted(stores: Iterable[Callable[[], None]]) -> None:
    """Have each store overwrite its deleted data; raises the first TransientError at the end."""
    failures: list[TransientError] = []
    for overwrite in stores:
        try:
            overwrite()
        except TransientError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _delete_revisions(stores: PurgeStores, skill_id: str) -> dict[str, Any]:
    """Delete the revisions from index and history, and the answers of language models about
    them."""
    counts = dict.fromkeys(("revisions", "kept_revisions", "model_answers", "verdicts"), 0)
    for number in range(_ROUNDS):
        keys = _list_keys(stores.index, skill_id)
        in_history = stores.history.list_revisions(skill_id)
        if number and not keys and not in_history:
            break
        hashes = {one.content_hash for one in stores.index.get_revisions(keys).values()}
        subjects = sorted(hashes | {one.content_hash for one in in_history})
        # First, since only the revisions name their contents, also to the next purge.
        counts["model_answers"] += stores.answers.forget(subjects) if stores.answers else 0
        counts["verdicts"] += stores.skill_pairs.forget(subjects) if stores.skill_pairs else 0
        stores.index.delete(keys)
        counts["revisions"] += len(keys)
        counts["kept_revisions"] += stores.history.forget([skill_id])
    return counts


def _list_keys(index: SearchIndex, skill_id: str) -> list[RevisionKey]:
    stored: Sequence[RevisionKey] = (*index.list_keys(), *index.partial_keys())
    return [key for key in stored if key.skill_id == skill_id]


def _wait_for_queries(stores: PurgeStores) -> None:
    """Wait for the end of queries that may have read the skill before it was withdrawn."""
    waiting = stores.journal.list_open_jobs("query")
    end = time.monotonic() + stores.settings.workers.query_seconds
    while waiting:
        states = stores.journal.get_job_states(waiting)
        waiting = [one for one in waiting if states.get(one, ("", ""))[0] == "accepted"]
        if waiting and time.monotonic() > end:
            raise TransientError(
                f"{len(waiting)} queries still run, whose answers may quote the skill; it is "
                "withdrawn: purge it again when they have ended"
            )
        time.sleep(_POLL_SECONDS if waiting else 0)


def _refuse_if_in_repository(stores: PurgeStores, source: Source, entry: CatalogEntry) -> None:
    """Raise UsageError while the last fetched commit of a git source has the skill."""
    if source.kind == "git" and _is_in_source(stores.settings, source, entry.path):
        raise UsageError(
            f"the repository of {source.source_id} still has {entry.path}, so that a fetch would "
            "bring it back: delete it there, run `skillbus sources refresh "
            f"{source.source_id}`, and purge it then"
        )


def _find_in_source(settings: Settings, source: Source | None, skill_id: str) -> str:
    """Return why a skill may come back: its source has it, or cannot be read here; "" if it
    cannot."""
    if source is None or source.kind != "directory":
        return ""
    path = skill_id.partition(":")[2]
    try:
        if not _is_in_source(settings, source, path):
            return ""
    except TransientError as error:
        return f"its source cannot be read here ({error})"
    return f"{source.root} still has {path}: it comes back when its folder changes"


def _is_in_source(settings: Settings, source: Source, path: str) -> bool:
    """Return whether a source has a skill, readable or not.

    Raises TransientError if the source cannot be read now.
    """
    try:
        with open_reader(source, settings) as reader:
            reader.read(path)
    except SkillGoneError:
        return False
    except TransientError:
        raise
    except PermanentError:
        return True
    return True
