"""Reranking in a library: the order, the skipped steps, and what the bundle reports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from search.protocol import Reranker
from skills.events import QueryAsked, SourceChanged
from skills.passages import section_texts
from tasks.policies import Deadline
from tasks.query.context import QueryContext
from tasks.query.pipeline import answer_query, rank_candidates
from tasks.query.process_state.durations import Clock, DurationEstimate
from tasks.query.ranking import Ranking
from tasks.query.rerank import cross_encoder_text, rerank
from tasks.services import Lazy, Services
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.reranking import WordReranker
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend

QUERY = "check the wheel and the bridge and the cheese twice before the winter night"
CHINESE = "检查自行车的轮子并且更换断了的辐条，然后校正车轮"


class FakeClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    base = tmp_path_factory.mktemp("rerank")
    root = write_topics(base / "crafts")
    write_skill(root, "wheel-zh", "检查自行车的轮子 wheel", body=f"## 步骤\n\n{CHINESE} wheel\n")
    with tiny_backend(base / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        yield backend


@pytest.fixture
def services(backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch) -> Services:
    """The library's services, with an estimate and a reranker of the test's own."""
    monkeypatch.setattr(backend.services, "rerank_duration", DurationEstimate())
    monkeypatch.setattr(backend.services, "reranker", None)
    return backend.services


def use(services: Services, reranker: Reranker) -> None:
    services.reranker = Lazy(lambda: reranker)


def ranked(services: Services, task: str = QUERY) -> Ranking:
    return rank_candidates(context_of(services, task=task))


def context_of(
    services: Services, *without: str, task: str = QUERY, seconds: float = 30
) -> QueryContext:
    request = QueryAsked(task=task, without=without)
    return QueryContext.create(services, request, Deadline(seconds), apply_policy=False)


def reranked(
    services: Services, before: Ranking, *without: str, clock: Clock = time.monotonic
) -> tuple[Ranking, tuple[str, ...]]:
    """The ranking after reranking, and the degradations."""
    context = context_of(services, *without)
    return rerank(context, before, clock), context.degradations.reasons


def ids(ranking: Ranking) -> list[str]:
    return [hit.key.skill_id for hit in ranking.hits]


def test_the_model_reads_name_description_and_body(services: Services) -> None:
    read: list[str] = []
    use(services, WordReranker(before=read.extend))
    before = ranked(services)
    after, degraded = reranked(services, before, "late")
    assert sorted(ids(after)) == sorted(ids(before))
    assert degraded == ()
    text = next(text for text in read if text.startswith("bicycle-repair"))
    assert text.startswith("bicycle-repair | True a bicycle wheel and replace a broken spoke | ")
    assert "Check the bicycle repair twice." in text
    assert len(read) == len([name for name in ids(before) if name != "crafts:wheel-zh"])


def test_the_sections_nearest_to_the_task_are_read_first(services: Services) -> None:
    before = ranked(services, "winter night")
    key = next(hit.key for hit in before.hits if hit.key.skill_id == "crafts:bicycle-repair")
    revision = services.index.get_revisions([key])[key]
    sections = services.index.get_section_vectors([key])[key]
    assert before.vector is not None
    assert len(sections) > 1
    best = section_texts(revision.parsed)[int((sections @ before.vector).argmax())].strip()
    text = cross_encoder_text(revision, 5_000, before.vector, sections)
    head = f"{revision.parsed.record.name} | {revision.parsed.record.description} | "
    assert text.startswith(head + best)
    assert cross_encoder_text(revision, 40, before.vector, sections) == text[:40]
    body = revision.parsed.text(revision.parsed.body_line, len(revision.parsed.lines))
    assert cross_encoder_text(revision, 5_000) == head + body


def test_batches_are_of_the_size_that_is_set_and_of_like_length(services: Services) -> None:
    sizes: list[list[int]] = []
    use(services, WordReranker(before=lambda texts: sizes.append([len(text) for text in texts])))
    reranked(services, ranked(services), "late")
    assert len(sizes[0]) == 1
    assert max(len(batch) for batch in sizes) <= services.settings.reranker.batch_size
    flat = [length for batch in sizes for length in batch]
    assert flat == sorted(flat, reverse=True)


def test_a_model_that_is_too_slow_is_skipped_and_the_order_stays(services: Services) -> None:
    clock = FakeClock()
    read: list[int] = []

    def slow(texts: Sequence[str]) -> None:
        read.append(len(texts))
        clock.now += 0.4 * len(texts)

    use(services, WordReranker(before=slow))
    before = ranked(services)
    after, degraded = reranked(services, before, "late", clock=clock)
    assert after.hits == before.hits
    (reason,) = degraded
    assert "rerank was skipped" in reason
    assert "1000 allowed" in reason
    assert read == [1]


def test_what_was_measured_before_keeps_it_from_beginning(services: Services) -> None:
    clock = FakeClock()
    read: list[int] = []

    def slow(texts: Sequence[str]) -> None:
        read.append(len(texts))
        clock.now += 0.4 * len(texts)

    use(services, WordReranker(before=slow))
    before = ranked(services)
    for _ in range(3):
        services.rerank_duration.record(1.0, 1.0)
    after, degraded = reranked(services, before, "late", clock=clock)
    assert read == []
    assert after.hits == before.hits
    assert degraded


def test_the_deadline_of_the_query_bounds_every_stage(services: Services) -> None:
    use(services, WordReranker())
    before = ranked(services)
    context = context_of(services, seconds=0)
    assert rerank(context, replace(before, vector=None)).hits == before.hits
    assert [reason.split()[0] for reason in context.degradations.reasons] == ["rerank"]


def test_a_task_in_a_language_the_model_does_not_know_is_left_alone(services: Services) -> None:
    use(services, WordReranker())
    before = ranked(services, CHINESE)
    after, degraded = reranked(services, before)
    assert after.hits == before.hits
    reason = "rerank was skipped: the reranker does not know the task's language, zh"
    assert degraded == (reason,)


def test_a_skill_in_a_language_the_model_does_not_know_keeps_its_place(services: Services) -> None:
    use(services, WordReranker())
    before = ranked(services, "wheel")
    assert "crafts:wheel-zh" in ids(before)
    after, _ = reranked(services, before)
    assert ids(after).index("crafts:wheel-zh") == ids(before).index("crafts:wheel-zh")


def test_stages_can_be_left_out(services: Services) -> None:
    use(services, WordReranker())
    before = ranked(services)
    assert reranked(services, before, "late", "rerank") == (before, ())


def test_late_interaction_goes_on_while_candidates_have_no_section_vectors(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ranked(services)
    measured = services.index.get_section_cosines
    hidden = {name for name in ids(before) if name != "crafts:wheel-zh"}
    for count in (1, len(hidden) - 1, len(hidden)):
        some = set(sorted(hidden)[:count])
        monkeypatch.setattr(
            services.index,
            "get_section_cosines",
            lambda keys, vector, some=some: measured(
                [key for key in keys if key.skill_id not in some], vector
            ),
        )
        part = ranked(services)
        after, degraded = reranked(services, part)
        assert degraded == ()
        assert sorted(ids(after)) == sorted(ids(before))
        assert any("late" in hit.parts for hit in after.hits if hit.key.skill_id in some)
        monkeypatch.setattr(services.index, "get_section_cosines", measured)


def test_late_interaction_orders_by_the_sections(services: Services) -> None:
    before = ranked(services)
    after, _ = reranked(services, before)
    assert before.vector is not None
    assert sorted(ids(after)) == sorted(ids(before))
    moved = [hit for hit in after.hits if "late" in hit.parts]
    assert moved
    for hit in moved:
        assert sum(hit.parts.values()) == pytest.approx(hit.score)


def test_a_long_task_is_left_to_its_words(services: Services) -> None:
    long = " ".join(f"word{number} wheel" for number in range(200))
    before = ranked(services, long)
    assert before.long_task_weight == 1.0
    assert reranked(services, before) == (before, ())


def test_the_bundle_says_what_was_skipped(services: Services) -> None:
    use(services, WordReranker())
    for _ in range(3):
        services.rerank_duration.record(1.0, 1.0)
    bundle, _ = answer_query(services, Deadline(30), "q-1", QueryAsked(task=QUERY))
    assert any("rerank was skipped" in reason for reason in bundle.degraded)
    assert "rerank" in bundle.timings_ms


def test_skills_that_are_gone_before_they_are_read_make_no_bundle(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.index, "get_revisions", lambda keys: {})
    bundle, _ = answer_query(
        services, Deadline(30), "q", QueryAsked(task=QUERY, without=("floor",))
    )
    assert bundle.status == "NO_SKILL_HIT"
    assert bundle.skills == ()
