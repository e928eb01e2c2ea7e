"""Checks of `doctor` on this machine, and functions that run checks."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from config.errors import MisconfiguredError, SkillbusError
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import Source
from search.models.load_models import load_encoder, load_reranker
from search.protocol import SearchIndex
from search.scoring.ranker_factors import load_factors
from skills.parsing.parse_skill import PARSER_VERSION
from skills.record import RevisionKey
from skills.skill_policy import check_rule_ids
from tasks.journal.protocol import DeadLetterStore
from tasks.journal.sqlite import SqliteJournal
from tasks.sources.directory import identify_folder
from tasks.sources.git import process
from workers.backend.factory import open_review_lister
from workers.backend.model_stores import open_answers
from workers.backend.stores import open_graph, open_index, open_outcomes
from workers.monitoring.parallel_probes import ParallelProbes
from workers.quantities import format_count

Check = Callable[[], str]
"""Returns a line about the finding; raises SkillbusError with the problem and its remedy."""

_LOW_DISK_BYTES = 500_000_000


def run_checks(checks: Mapping[str, Check]) -> list[dict[str, str]]:
    """Run the checks one after another, without a timeout: loading a model may take long."""
    return [_check_result(name, _run_check(check)) for name, check in checks.items()]


def run_checks_in_parallel(checks: Mapping[str, Check], seconds: float) -> list[dict[str, str]]:
    """Run the checks in parallel; a check without a result within `seconds` fails."""
    return [
        _check_result(name, found) for name, found in ParallelProbes(checks).run(seconds).items()
    ]


def _run_check(check: Check) -> str | SkillbusError:
    try:
        return check()
    except SkillbusError as error:
        return error


def _check_result(name: str, found: str | SkillbusError) -> dict[str, str]:
    state = "failed" if isinstance(found, SkillbusError) else "ok"
    return {"check": name, "state": state, "detail": " ".join(str(found).split())}


def machine_checks(settings: Settings) -> dict[str, Check]:
    """Return checks of programs and models, and of the disk of an embedded library."""
    checks: dict[str, tuple[Callable[[Settings], str], object]] = {
        "disk": (_check_disk, not settings.distributed),  # else the home holds only a socket
        "git": (_check_git, True),
        "encoder": (_check_encoder, True),
        "reranker": (_check_reranker, settings.reranker.model),
        "ranker": (_check_ranker, settings.ranker.weights),
        "oidc": (_check_oidc, settings.oidc.issuer),
        "language model": (_check_language_model, settings.language_model.base_url),
        "suppressed rules": (_check_suppressed_rules, settings.policy.suppressed_rules),
    }
    return {name: partial(check, settings) for name, (check, applies) in checks.items() if applies}


def _check_suppressed_rules(settings: Settings) -> str:
    rules = settings.policy.suppressed_rules
    check_rule_ids(rules, "policy.suppressed_rules")
    return f"findings of {', '.join(rules)} do not count (policy.suppressed_rules)"


def _check_oidc(settings: Settings) -> str:
    from workers.http.oidc.keys import load_keys  # slow to import

    try:
        keys = load_keys(settings.oidc)
    except SkillbusError as error:
        raise MisconfiguredError(
            f"{error}; until its keys can be fetched, only gateways that have them already accept "
            f"tokens of {settings.oidc.issuer}; check oidc.issuer, oidc.jwks and the network"
        ) from None
    return f"{format_count(len(keys), 'key')} of {settings.oidc.issuer}"


def library_checks(settings: Settings) -> dict[str, Check]:
    """Return checks of the stores and sources of an embedded library."""
    if not (settings.home / "graph.db").exists():
        return {"library": lambda: f"{settings.home}: nothing synced yet"}
    checks = {
        "catalog": _check_catalog,
        "journal": _check_journal,
        "index": _check_index,
        "sources": _check_sources,
        "reviews": check_reviews,
        "outcomes": _check_outcomes,
    }
    if settings.language_model.in_use:
        checks["answers"] = _check_answers
    return {name: partial(check, settings) for name, check in checks.items()}


def check_reviews(settings: Settings) -> str:
    """Return the numbers of skills and updates that wait for a person."""
    with open_review_lister(settings) as lister:
        counts = lister.count()
    waiting = f"waiting: {counts['withheld']} withheld, {format_count(counts['updates'], 'update')}"
    hint = "; see `skillbus review list`" if counts["withheld"] or counts["updates"] else ""
    return waiting + hint


def _check_outcomes(settings: Settings) -> str:
    with ExitStack() as stack:
        open_outcomes(settings, stack).get_epoch()
    return "answered queries and outcomes can be read"


def _check_answers(settings: Settings) -> str:
    with ExitStack() as stack:
        open_answers(settings, stack)
    return "answers of the language model can be read"


def _check_disk(settings: Settings) -> str:
    folder = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < _LOW_DISK_BYTES:
        raise SkillbusError(f"only {free / 1e6:.0f} MB free at {folder}; free some space")
    return f"{free / 1e9:.1f} GB free at {folder}"


def _check_git(_settings: Settings) -> str:
    """Return the version of git. Never fails, since only git sources need it (`_check_sources`)."""
    try:
        return process.get_git_version()
    except MisconfiguredError as error:
        return f"{error}; needed for git sources only"


def _check_encoder(settings: Settings) -> str:
    encoder = load_encoder(settings.encoder)
    vector = encoder.encode_texts(["a short text"])
    dimensions = f"{vector.shape[1]} dimensions"
    return f"{encoder.model}, {dimensions}, {_describe_languages(encoder.languages)}"


def _check_reranker(settings: Settings) -> str:
    reranker = load_reranker(settings.reranker)
    reranker.score("a short task", ["a short text"])
    return f"{reranker.model}, {_describe_languages(reranker.languages)}"


def _describe_languages(languages: Iterable[str]) -> str:
    return f"languages: {', '.join(sorted(languages))}"


def _check_ranker(settings: Settings) -> str:
    load_factors(settings.ranker.weights)
    return f"weights of {settings.ranker.weights}"


def _check_language_model(settings: Settings) -> str:
    # Without a language model its client is not imported.
    from workers.monitoring.language_model_check import check_language_model

    return check_language_model(settings)


def _check_catalog(settings: Settings) -> str:
    with ExitStack() as stack:
        graph = open_graph(settings, stack, writable=False)
        counts, outdated = graph.get_counts(), describe_outdated(graph)
    if counts["waiting"]:
        raise SkillbusError(
            f"{format_count(counts['waiting'], 'skill')} pending; run `skillbus serve` or sync"
        )
    found = [f"{counts[name]} {name}" for name in ("published", "failed", "embedded")]
    return ", ".join(found) + outdated


def describe_outdated(graph: Catalog) -> str:
    """Return a part of a line about skills of an older version of the parser, "" without any."""
    count = graph.count_parsed_before(PARSER_VERSION)
    if not count:
        return ""
    return (
        f", {count} of an older version of the parser, which are parsed again in the background; "
        "`skillbus reindex` does it at once"
    )


def _check_journal(settings: Settings) -> str:
    journal = SqliteJournal(settings.home / "journal.db")
    try:
        check_dead_letters(journal)
        count = journal.count_open_jobs("event") + journal.count_open_jobs("query")
    finally:
        journal.close()
    return f"{count} events and queries open"


def check_dead_letters(store: DeadLetterStore) -> str:
    """Raise SkillbusError if there are dead letters."""
    count = store.count_dead_letters()
    if count:
        letters = format_count(count, "dead letter")
        raise SkillbusError(
            f"{letters} (last: {store.list_dead_letters(1)[0].reason}); "
            "see `skillbus dead list`, then retry or discard"
        )
    return "none"


def _check_index(settings: Settings) -> str:
    with ExitStack() as stack:
        index = open_index(settings, stack, writable=False)
        found = compare_with_index(open_graph(settings, stack, writable=False), index)
    if found.missing:
        raise SkillbusError(
            f"the index lacks {format_count(len(found.missing), 'published revision')}, such as "
            f"{min(found.missing)}; move {settings.home} away and sync again"
        )
    revisions = format_count(found.published + found.others, "revision")
    return f"{revisions}, {found.others} of them superseded"


class IndexComparison(NamedTuple):
    """Published revisions compared with an index. published: number of them. missing: those that
    the index lacks. others: number of further revisions in the index."""

    published: int
    missing: set[RevisionKey]
    others: int


def compare_with_index(graph: Catalog, index: SearchIndex) -> IndexComparison:
    """Compare the published revisions with an index, while both may change.

    Pointers are read before and after the index; skills that moved meanwhile are left out.
    """
    before = graph.get_changes_since(0)
    stored = set(index.list_keys())
    moved = graph.get_changes_since(before.epoch).pointers
    pointers = {name: seq for name, seq in before.pointers.items() if seq and name not in moved}
    published = {RevisionKey(name, seq) for name, seq in pointers.items()}
    others = max(0, len(stored - published) - len(moved))
    return IndexComparison(len(published), published - stored, others)


def _check_sources(settings: Settings) -> str:
    with ExitStack() as stack:
        found = open_graph(settings, stack, writable=False).list_sources()
    problems = [
        f"directory {source.root} of source {source.source_id} is missing: restore it, or "
        f"`skillbus sources remove {source.source_id}`"
        for source in found
        if source.kind == "directory" and identify_folder(Path(source.root)) is None
    ]
    problems += fetch_failures(found) + find_unknown_sources(settings, found)
    if any(source.kind == "git" for source in found):
        problems += _missing_git()
    if problems:
        raise SkillbusError("; ".join(problems))
    return f"{len(found)} reachable"


def fetch_failures(sources: Sequence[Source]) -> list[str]:
    """Return git sources whose last fetch failed, each with the reason."""
    return [f"{source.source_id}: {source.last_error}" for source in sources if source.last_error]


def find_unknown_sources(settings: Settings, sources: Sequence[Source]) -> list[str]:
    """Return settings of the policy that name a source that does not exist: they have no effect."""
    known = {source.source_id for source in sources}
    policy = settings.policy
    named = {"policy.sources": policy.sources, "policy.public": policy.public}
    unknown = [(name, one) for name, ids in named.items() for one in ids if one not in known]
    unknown += [
        ("policy.review", pattern)
        for pattern in policy.review
        if not fnmatch.filter(known, pattern.partition(":")[0])
    ]
    return [
        f"{name} names {one!r}, which is not a source; `skillbus sources list` lists them"
        for name, one in unknown
    ]


def _missing_git() -> list[str]:
    try:
        process.find_git()
    except MisconfiguredError as error:
        return [str(error)]
    return []
