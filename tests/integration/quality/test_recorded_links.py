"""Links on recorded answers of a capable model to the prompts of today, through HTTP.

How many of the links that it gives are right by the labels in `tests/data/links.jsonl`, and how
many dependencies the 189 skills of SkillsBench gain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from graph.links.linker import Linker
from graph.protocol import SkillGraph
from graph.records import Link, LinkType
from search.protocol import StoredRevision
from skills.events import SourceChanged
from skills.record import RevisionKey
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.skill_pairs.protocol import PairVerdict
from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
from tasks.policies import Deadline
from tasks.refine.linking import candidates
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.link_stage import LinkStage
from tasks.refine.linking.prompt import LinksAnswer
from tasks.refine.linking.read_verdicts import read_verdicts
from tasks.refine.linking.verdict_links import StoredVerdictLinks
from tasks.refine.stage import RefineContext
from tests.bench.recorded_links import (
    build_labelled_prompts,
    choose_labels,
    choose_skills,
    read_skill_texts,
)
from tests.support.program.recorded import RecordedAnswers
from tests.support.samples.real_skills import ROOT, Collections, needs_collections
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.language_model import LanguageModelServer
from workers.backend.embedded import EmbeddedBackend

ANSWERS = ROOT / "tests" / "data" / "recorded" / "links.jsonl"
LABELS = ROOT / "tests" / "data" / "links.jsonl"
LABELLED, ASKED_SKILLS = 100, 40

pytestmark = needs_collections


@pytest.fixture(scope="module")
def answers() -> RecordedAnswers:
    return RecordedAnswers.read(ANSWERS)


@pytest.fixture(scope="module")
def server(answers: RecordedAnswers) -> Iterator[LanguageModelServer]:
    with LanguageModelServer(answers) as started:
        yield started


@pytest.fixture(scope="module")
def library(
    real_skills: Collections,
    tmp_path_factory: pytest.TempPathFactory,
    server: LanguageModelServer,
) -> Iterator[EmbeddedBackend]:
    """The 189 skills, published and linked by the rules."""
    base = tmp_path_factory.mktemp("links")
    settings = server.settings(stages=("select",)).model_dump()
    with tiny_backend(base / "home", language_model=settings) as backend:
        event = SourceChanged(source_id="gt", root=str(real_skills("gt")))
        backend.submit(event, "tests")
        settle(backend, 240.0)
        yield backend


def is_right(verdict: PairVerdict, row: dict[str, str]) -> bool:
    """Whether a link that the model gives is right by the label of the pair.

    A right pair may get another type, since most labels only say that the rules' link is right;
    but a dependency or a workflow may not lead the other way round.
    """
    ends = verdict.skill_ids if verdict.first else verdict.skill_ids[::-1]
    if row["label"] != "right":
        return row["label"] == verdict.type
    directed = verdict.type == row["type"] in ("dependency", "workflow")
    return not directed or ends == (row["source"], row["target"])


def test_links_that_are_kept_are_right(
    real_skills: Collections, server: LanguageModelServer, answers: RecordedAnswers
) -> None:
    rows = choose_labels(map(json.loads, LABELS.read_text().splitlines()), LABELLED)
    by_pair = {frozenset((row["source"], row["target"])): dict(row) for row in rows}
    ends = {row[end] for row in rows for end in ("source", "target")}
    folders = {name: real_skills(name) for name in ("gt", "community")}
    judged: list[bool] = []
    model = OpenAILanguageModel(server.settings(stages=("links",)))
    for prompt in build_labelled_prompts(rows, read_skill_texts(ends, folders)):
        answer = model.complete(prompt.request, LinksAnswer, prompt.check).answer
        judged += [
            is_right(verdict, by_pair[frozenset(verdict.skill_ids)])
            for verdict in read_verdicts(prompt, answer)[0]
            if verdict.type
        ]
    model.close()
    assert not answers.unknown
    assert len(judged) >= 50
    assert sum(judged) / len(judged) >= 0.95


def test_twice_as_many_dependencies(
    library: EmbeddedBackend, answers: RecordedAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, texts = candidates.read_skill_text, dict[RevisionKey, SkillText]()

    def read_once(revision: StoredRevision) -> SkillText:
        if revision.key not in texts:
            texts[revision.key] = read(revision)
        return texts[revision.key]

    # Each of these skills is a candidate of dozens of others.
    monkeypatch.setattr(candidates, "read_skill_text", read_once)
    services = library.services
    before = dependencies(services.graph)
    assert before
    assert services.language_model is not None
    assert services.answers is not None
    model = services.language_model.get()
    context = RefineContext(services, model, services.answers, Deadline(600))
    for revision in choose_skills(services, ASKED_SKILLS):
        LinkStage().refine(context, revision)
    assert not answers.unknown
    assert isinstance(services.skill_pairs, SqliteSkillPairs)
    kind = RefinementKind("links", model.model, LinkStage().version)
    read_verdicts = StoredVerdictLinks(services.graph, services.skill_pairs, kind)
    linker = Linker(services.graph, verdict_links=read_verdicts)
    graph = services.graph
    graph.mark_for_linking([entry.skill_id for entry in graph.get_entries()])
    while marks := graph.list_awaiting_linking(1000):
        linker.relink(marks)
    assert before <= dependencies(graph)
    assert len(dependencies(graph)) >= 2 * len(before)


def dependencies(graph: SkillGraph) -> set[tuple[str, str]]:
    ids = [entry.skill_id for entry in graph.get_entries()]
    links: list[Link] = graph.get_links_among(ids)
    return {link.ends for link in links if link.type is LinkType.DEPENDENCY}
