"""An interrupted purge is finished by the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from config.errors import TransientError
from tasks.evaluations.sqlite import SqliteEvaluationStore
from tasks.history.purge import PurgeStores, purge_skill
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs.protocol import AskedPair, PairVerdict, order_pair
from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill

KIND = RefinementKind("roles", "model", 1)


@pytest.fixture
def library() -> Iterator[OneSkill]:
    with open_skill() as opened:
        opened.edit(0)
        opened.ingest(1)
        opened.remove(0)
        yield opened


@pytest.fixture
def stores(library: OneSkill) -> Iterator[PurgeStores]:
    services = library.services
    home = services.settings.home
    answers, pairs = SqliteAnswerStore(home / "answers.db"), SqliteSkillPairs(home / "answers.db")
    evaluations = SqliteEvaluationStore(home / "evaluations.db")
    assert services.history is not None
    assert services.review_store is not None
    yield PurgeStores(
        *(services.settings, services.graph, services.index, services.history),
        *(services.review_store, services.journal, services.coordinator, evaluations),
        *(answers, pairs, lambda: None),
    )
    for store in (answers, pairs, evaluations):
        store.close()


def test_what_a_model_said_is_forgotten_by_the_next_purge(
    library: OneSkill, stores: PurgeStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    [entry] = library.services.graph.get_entries([SKILL])
    subject, pair = entry.content_hash, order_pair(entry.content_hash, "other")
    assert stores.answers is not None
    assert stores.skill_pairs is not None
    stores.answers.save_refinements(KIND, {subject: {"roles": ["a"]}})
    stores.skill_pairs.claim_pairs(KIND, subject, [AskedPair(pair, (SKILL, "lib:other"))])
    stores.skill_pairs.save_verdicts(
        KIND, [PairVerdict(pair, (SKILL, "lib:other"), "alternative", evidence="says so")]
    )
    with monkeypatch.context() as interrupted:

        def fail(*_: object) -> int:
            raise TransientError("another process reads them")

        interrupted.setattr(type(stores.answers), "forget", fail)
        with pytest.raises(TransientError, match="another process"):
            purge_skill(stores, SKILL)
    report = purge_skill(stores, SKILL)
    assert (report["model_answers"], report["verdicts"]) == (1, 1)
    assert stores.answers.get_refinements(KIND, [subject]) == {}
    assert stores.skill_pairs.find_known(KIND, [pair]) == set()
