"""What is particular to the search index in Elasticsearch, on a real server."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.server_settings import ServerSettings
from search.elastic import index as elastic_index
from search.elastic.connection import BulkOperation
from search.elastic.document_codec import document_id
from search.elastic.health import index_health
from search.elastic.index import ElasticsearchIndex
from search.elastic.index_sets import IndexIdentity, IndexSet
from search.elastic.replacement import ElasticsearchReplacement, delete_superseded
from search.elastic.revision_history import ElasticsearchRevisionHistory
from search.protocol import Filters, SkillDocument
from search.revision_history import HistoryLimits, KeptRevision
from search.skill_analysis import skill_text_hashes, skill_texts
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.ingest.upgrade import reindex as task
from tests.support.samples.documents import ENCODER
from tests.support.samples.documents import tiny_document as document
from tests.support.samples.searches import search_lexical
from tests.support.samples.tiny import DIMENSION, TinyEncoder
from tests.support.servers.elastic import ElasticIndices
from tests.support.servers.servers import ServerControls

MODEL, ANY = TinyEncoder.model, Filters()
LIMITS = HistoryLimits(5, 1_000_000)


def put_sections(index: ElasticsearchIndex, one: SkillDocument) -> None:
    vectors = ENCODER.encode_texts(section_texts(one.parsed))
    index.save_section_vectors(one.key, one.section_hashes, vectors)


def names(index: ElasticsearchIndex, word: str) -> set[str]:
    hits = search_lexical(index, {word: 1.0}, 100, ANY)
    return {hit.key.skill_id.removeprefix("home:") for hit in hits}


def open_index(
    settings: ServerSettings, model: str = MODEL, writable: bool = True
) -> ElasticsearchIndex:
    return ElasticsearchIndex(settings, model, DIMENSION, writable=writable)


@pytest.fixture
def settings(elastic: ElasticIndices) -> ServerSettings:
    return elastic.settings()


@pytest.fixture
def index(elastic: ElasticIndices, tmp_path: Path) -> Iterator[ElasticsearchIndex]:
    opened = elastic.open(tmp_path, MODEL, DIMENSION)
    yield opened
    opened.close()


class TestOpening:
    def test_a_reader_finds_no_index(self, settings: ServerSettings) -> None:
        with pytest.raises(MisconfiguredError, match="no search index with prefix"):
            open_index(settings, writable=False).list_keys()
        problems = index_health(settings, MODEL, DIMENSION).problems
        assert any("no search index" in one for one in problems)

    def test_processes_that_start_at_once_make_one_set(self, settings: ServerSettings) -> None:
        indices = [open_index(settings) for _ in range(4)]
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                indices[number].add([document(f"loom-{number}"), document("shared")])
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len({one.ensure().name for one in indices}) == 1
        assert {len(one.list_keys()) for one in indices} == {5}
        self.refuses_another_model(settings)
        self.comes_back_when_it_was_deleted(indices[0])

    def refuses_another_model(self, settings: ServerSettings) -> None:
        for writable in (True, False):
            with pytest.raises(MisconfiguredError, match=r"other:1.*skillbus reindex"):
                open_index(settings, "other:1", writable=writable).list_keys()
        problems = index_health(settings, "other:1", DIMENSION).problems
        assert any("skillbus reindex" in one for one in problems)
        health = index_health(settings, MODEL, DIMENSION)
        assert health.problems == ()
        assert (health.status, health.documents, health.version[:2]) == ("green", 5, "9.")

    def comes_back_when_it_was_deleted(self, index: ElasticsearchIndex) -> None:
        chosen = index.ensure()
        index._sets.activate(replace(chosen, name=chosen.name))
        with index._connection.translate_errors() as client:
            every = client.indices.get_alias(index=f"{chosen.name}-*")
            client.indices.delete(index=",".join(every))
        with pytest.raises(TransientError, match="was deleted"):
            index.add([document("anvil")])
        index.add([document("anvil")])
        assert index.list_keys() == [document("anvil").key]
        with index._connection.translate_errors() as client:
            mapping = client.indices.get_mapping(index=chosen.index_name("skills"))
        assert mapping[chosen.index_name("skills")]["mappings"]["dynamic"] == "strict"

    def test_of_two_models_that_start_at_once_the_first_is_kept(
        self, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = open_index(settings), open_index(settings, "other:1")
        create = second._sets.create

        def create_late(identity: IndexIdentity) -> IndexSet:
            made = create(identity)
            first.ensure()
            return made

        monkeypatch.setattr(second._sets, "create", create_late)
        with pytest.raises(MisconfiguredError, match="skillbus reindex"):
            second.ensure()
        reader = open_index(settings, writable=False)
        assert reader.ensure() == first.ensure()
        for one in (first, second, reader):
            one.close()

    def test_a_set_that_lacks_an_index_is_refused(self, settings: ServerSettings) -> None:
        first, second = open_index(settings), open_index(settings)
        vectors = first.ensure().index_name("vectors")
        with first._connection.translate_errors() as client:
            client.indices.delete(index=vectors)
        with pytest.raises(MisconfiguredError, match=f"{vectors} is missing"):
            second.ensure()
        [problem] = index_health(settings, MODEL, DIMENSION).problems
        assert f"no such index [{vectors}]" in problem
        for one in (first, second):
            one.close()

    def test_a_cluster_that_takes_no_more_shards(self, settings: ServerSettings) -> None:
        index = open_index(settings)
        history = ElasticsearchRevisionHistory(settings, LIMITS)
        limit = "cluster.max_shards_per_node"
        with index._connection.translate_errors() as client:
            client.cluster.put_settings(persistent={limit: 1})
            try:
                for write in (index.ensure, lambda: history.forget(["home:loom"])):
                    with pytest.raises(MisconfiguredError, match="maximum normal shards open"):
                        write()
            finally:
                client.cluster.put_settings(persistent={limit: None})
        for one in (index, history):
            one.close()

    def test_a_strangers_index_is_left_alone(self, settings: ServerSettings) -> None:
        mine = open_index(settings)
        with mine._connection.translate_errors() as client:
            client.indices.create(index=f"{settings.elasticsearch_prefix}-skills")
        with pytest.raises(MisconfiguredError, match=r"another servers\.elasticsearch_prefix"):
            mine.add([document("loom")])
        mine.close()

    def test_a_forked_child_makes_its_own_connection(self, index: ElasticsearchIndex) -> None:
        index.add([document("loom")])
        before = index._connection.client
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if not child:
            sender.send((names(index, "loom"), index._connection.client is not before))
            os._exit(0)
        assert receiver.poll(120)
        assert receiver.recv() == ({"loom"}, True)
        os.waitpid(child, 0)
        assert index._connection.client is before
        assert names(index, "loom") == {"loom"}


class TestWriting:
    def test_what_another_process_has_just_written_is_visible(
        self, index: ElasticsearchIndex, elastic: ElasticIndices, tmp_path: Path
    ) -> None:
        other = elastic.open(tmp_path, MODEL, DIMENSION)
        for number in range(3):
            one = document(f"loom-{number}")
            writer = threading.Thread(target=other.add, args=([one],))
            writer.start()
            time.sleep(0.02)
            index.add([one])
            assert one.key in {hit.key for hit in search_lexical(index, {"loom": 1.0}, 9, ANY)}
            writer.join()
        other.close()

    def test_a_read_only_index_is_a_matter_of_time(self, index: ElasticsearchIndex) -> None:
        index.add([document("loom")])
        chosen = index.ensure()
        index._sets.block_writes(chosen, True)
        try:
            with pytest.raises(TransientError, match="takes no writes"):
                index.add([document("kiln")])
            with pytest.raises(TransientError, match="takes no writes"):
                index.delete([document("loom").key])
            assert names(index, "loom") == {"loom"}
            health = index_health(index._connection._servers, MODEL, DIMENSION)
            assert any("refuse writes" in one for one in health.problems)
        finally:
            index._sets.block_writes(chosen, False)
        index.add([document("kiln")])
        assert names(index, "kiln") == {"kiln"}

    def test_a_closed_index_is_neither_empty_nor_damaged(self, settings: ServerSettings) -> None:
        """It is closed while a snapshot is restored into it; no skill may suffer meanwhile."""
        index = open_index(settings)
        history = ElasticsearchRevisionHistory(settings, LIMITS)
        one = document("loom")
        index.add([one])
        history.keep([KeptRevision(one.key, one.content_hash, one.parsed)])
        calls: list[Callable[[], object]] = [
            lambda: index.add([document("kiln")]),
            lambda: index.delete([one.key]),
            lambda: index.complete_keys([one.key]),
            lambda: index.get_revisions([one.key]),
            lambda: names(index, "loom"),
            index.list_keys,
            lambda: history.find_kept([one.key]),
            history.get_pins,
            history.max_seq,
            lambda: list(history.read_all()),
        ]
        with index._connection.translate_errors() as client:
            every = list(client.indices.get_alias(index=f"{settings.elasticsearch_prefix}-*"))
            client.indices.close(index=every)
            for call in calls:
                with pytest.raises(TransientError, match="is closed: open it"):
                    call()
            assert "is closed" in index_health(settings, MODEL, DIMENSION).problems[0]
            client.indices.open(index=every)
        assert names(index, "loom") == {"loom"}
        assert history.max_seq() == one.key.seq
        for opened in (index, history):
            opened.close()

    def test_longest_tokens_and_wide_blanks(self, index: ElasticsearchIndex) -> None:
        long = "x" * 255
        one = document("loom", "读取\u3000日志")
        fields = (*one.fields[:3], (*one.fields[3], long), one.fields[4])
        index.add([replace(one, fields=fields)])
        assert names(index, long) == {"loom"}
        assert names(index, "日志") == {"loom"}

    def test_a_document_that_cannot_be_is_named_and_others_are_written(
        self, index: ElasticsearchIndex
    ) -> None:
        bad = replace(document("kiln"), vectors=np.ones((2, DIMENSION + 1), np.float32))
        with pytest.raises(PermanentError, match="home:kiln@1"):
            index.add([document("loom"), bad, document("anvil")])
        assert names(index, "helps") | names(index, "help") == {"loom", "anvil"}
        assert index.partial_keys() == [bad.key]
        index.delete([bad.key])
        assert index.partial_keys() == []

    def test_a_kill_between_the_writes_leaves_what_can_be_swept(
        self, index: ElasticsearchIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add([document("loom")])
        write, calls = index._connection.bulk_unless_refused, iter(range(2))

        def once(operations: Sequence[BulkOperation], **how: bool) -> object:
            if next(calls):
                raise KeyboardInterrupt
            return write(operations, **how)

        monkeypatch.setattr(index._connection, "bulk_unless_refused", once)
        with pytest.raises(KeyboardInterrupt):
            index.add([document("kiln")])
        monkeypatch.undo()
        assert index.list_keys() == [document("loom").key]
        assert index.partial_keys() == [document("kiln").key]
        index.add([document("kiln")])
        assert index.partial_keys() == []


class TestReading:
    def test_more_keys_than_one_answer_may_hold(
        self, index: ElasticsearchIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("search.elastic.document_reader.MAX_HITS", 50)
        skills = index.ensure().write_alias("skills")
        wanted = [RevisionKey(f"home:bare-{number}", number) for number in range(120)]
        lines: list[dict[str, object]] = []
        for key in wanted:
            lines += [
                {"create": {"_id": document_id(key)}},
                {"skill_id": key.skill_id, "seq": key.seq},
            ]
        with index._connection.translate_errors() as client:
            client.bulk(index=skills, operations=lines, refresh=True)
        keys = index.list_keys()
        assert len(keys) == len(wanted)
        assert set(keys) == set(wanted)
        index.delete(wanted)
        assert index.list_keys() == []

    def test_a_search_that_is_refused_says_why(self, index: ElasticsearchIndex) -> None:
        sources = tuple(map(str, range(65_537)))
        with pytest.raises(PermanentError, match=r"number of terms \[65537\]"):
            search_lexical(index, {"loom": 1.0}, 5, Filters(source=sources))

    def test_many_records_are_read_in_pages(
        self, index: ElasticsearchIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("search.elastic.document_reader.READ_BATCH", 3)
        monkeypatch.setattr("search.elastic.vector_reader.READ_BATCH", 3)
        documents = [document(f"loom-{number}") for number in range(10)]
        index.add(documents)
        keys = [one.key for one in documents]
        assert list(index.get_forward_records([*keys, RevisionKey("home:none", 1)])) == keys
        assert list(index.get_revisions(keys)) == keys
        assert set(index.get_skill_vectors(keys)) == set(keys)
        hashes = [text for one in documents for text in skill_text_hashes(MODEL, one.parsed)]
        assert set(index.get_cached_vectors(hashes)) == set(hashes)

    def test_rare_texts_are_found_next_to_one_that_all_share(
        self, index: ElasticsearchIndex
    ) -> None:
        documents = [document(f"loom-{number}", f"Step {number}.") for number in range(40)]
        index.add(documents)
        for one in documents:
            put_sections(index, one)
        shared = set(documents[0].section_hashes) & set(documents[1].section_hashes)
        assert shared
        wanted = {*documents[3].section_hashes, *documents[30].section_hashes}
        end = time.monotonic() + 60
        while set(found := index.get_cached_vectors(list(wanted))) != wanted:
            assert time.monotonic() < end, wanted - set(found)
            time.sleep(0.1)

    def test_what_never_changes_is_read_once(
        self, index: ElasticsearchIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = document("loom")
        index.add([one])
        assert index.get_section_vectors([one.key]) == {}
        put_sections(index, one)
        first = (index.get_revisions([one.key]), index.get_section_vectors([one.key]))
        vectors = index.get_skill_vectors([one.key])[one.key]
        monkeypatch.setattr(index, "_reader", None)
        with pytest.raises(AttributeError):
            index.get_forward_records([one.key])
        assert index.get_skill_vectors([one.key])[one.key].tolist() == vectors.tolist()
        monkeypatch.undo()
        index.delete([one.key])
        assert index.get_revisions([one.key]) == {}
        assert index.get_section_vectors([one.key]) == {}
        assert index.get_skill_vectors([one.key]) == {}
        assert first[0][one.key].parsed == one.parsed


class OtherEncoder(TinyEncoder):
    """Another model of the same length."""

    model = "other:1"

    def encode_texts(
        self, texts: Sequence[str], between: Callable[[], None] | None = None
    ) -> np.ndarray:
        return -super().encode_texts(texts, between)[:, ::-1].copy()


class Interrupted(BaseException):
    pass


class TestReindex:
    def test_to_another_model_while_skills_are_published(self, settings: ServerSettings) -> None:
        old = open_index(settings)
        library = [document(f"loom-{number}", f"Body {number}.") for number in range(12)]
        old.add(library)
        for one in library[:5]:
            put_sections(old, one)
        pointers = {one.key.skill_id: one.key.seq for one in library}
        self.interrupted(settings, old, pointers)
        stop, refused = threading.Event(), []

        def publish() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                one = document(f"late-{number}", seq=100 + number)
                try:
                    old.add([one])
                    pointers[one.key.skill_id] = one.key.seq
                    assert names(old, "late") >= {f"late-{number}"}
                    put_sections(old, one)
                except TransientError as error:
                    refused.append(str(error))
                    return

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            self.run(settings, pointers)
        finally:
            stop.set()
            publisher.join()
        assert refused
        assert "restart workers after a reindex" in refused[0]
        assert names(old, "late") | names(old, "loom") == {
            name.removeprefix("home:") for name in pointers
        }
        self.check(settings, pointers, library)
        assert delete_superseded(settings) == [old.ensure().name]
        assert delete_superseded(settings) == []
        with pytest.raises(TransientError, match="was deleted"):
            old.list_keys()
        with pytest.raises(UsageError, match="already"):
            ElasticsearchReplacement(settings, OtherEncoder.model, DIMENSION)
        old.close()

    def interrupted(
        self, settings: ServerSettings, old: ElasticsearchIndex, pointers: dict[str, int]
    ) -> None:
        """A first try ends in the middle, or just before the switch: the old index goes on."""
        replacement = ElasticsearchReplacement(settings, OtherEncoder.model, DIMENSION)
        copier = task.IndexCopier(
            replacement.source, replacement.target, OtherEncoder.model, OtherEncoder()
        )

        def stop() -> None:
            raise Interrupted

        replacement.switch = stop  # type: ignore[method-assign]  # dies before the switch
        with pytest.raises(Interrupted):
            task.reindex(replacement, copier, lambda: dict(list(pointers.items())[:7]))
        assert len(replacement.target.list_keys()) == 7
        replacement.close()
        live = old._sets.get_live()
        assert live is not None
        assert live.name == old.ensure().name
        one = document("loom-middle", seq=50)
        old.add([one])
        pointers[one.key.skill_id] = one.key.seq

    def run(self, settings: ServerSettings, pointers: dict[str, int]) -> None:
        replacement = ElasticsearchReplacement(settings, OtherEncoder.model, DIMENSION)
        assert not replacement.same_model
        copier = task.IndexCopier(
            replacement.source, replacement.target, OtherEncoder.model, OtherEncoder()
        )
        copied = task.reindex(replacement, copier, lambda: dict(pointers))
        assert copied >= 6
        replacement.close()

    def check(
        self, settings: ServerSettings, pointers: dict[str, int], library: list[SkillDocument]
    ) -> None:
        new = open_index(settings, OtherEncoder.model, writable=False)
        published = {RevisionKey(*item) for item in pointers.items()}
        assert set(new.list_keys()) == published
        stored = new.get_revisions([library[0].key])[library[0].key]
        assert stored.parsed == library[0].parsed
        assert stored.filters == library[0].filters
        sections = new.get_section_vectors(list(published))
        # Another model embeds every skill anew; the last may have come after the copy.
        missing = published - set(sections)
        assert len(missing) <= 1
        assert all("late" in key.skill_id for key in missing)
        vectors = OtherEncoder().encode_texts(skill_texts(library[3].parsed))
        assert np.allclose(
            new.get_skill_vectors([library[3].key])[library[3].key], vectors, atol=1e-3
        )
        expected = OtherEncoder().encode_texts(section_texts(library[3].parsed))
        assert (sections[library[3].key] * expected).sum(axis=1).min() > 0.999
        new.close()
        with pytest.raises(MisconfiguredError, match="reindex"):
            open_index(settings).list_keys()

    def test_to_another_schema_vectors_are_copied(
        self, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = open_index(settings)
        one = document("loom")
        old.add([one])
        put_sections(old, one)
        monkeypatch.setattr("search.elastic.replacement.SCHEMA", "1.99")
        monkeypatch.setattr(elastic_index, "SCHEMA", "1.99")
        replacement = ElasticsearchReplacement(settings, MODEL, DIMENSION)
        assert replacement.same_model
        copier = task.IndexCopier(replacement.source, replacement.target, MODEL)
        assert task.reindex(replacement, copier, lambda: {one.key.skill_id: 1}) == 1
        replacement.close()
        new = open_index(settings)
        plain = ElasticsearchIndex(
            settings, MODEL, DIMENSION, writable=False, index_set=new.ensure(), caching=False
        )
        assert one.vectors is not None
        assert np.array_equal(plain.get_skill_vectors([one.key])[one.key], one.vectors)
        assert np.allclose(
            new.get_section_vectors([one.key])[one.key], old.get_section_vectors([one.key])[one.key]
        )
        for opened in (old, new, plain):
            opened.close()

    def test_nothing_there_yet(self, settings: ServerSettings) -> None:
        with pytest.raises(UsageError, match="nothing to reindex"):
            ElasticsearchReplacement(settings, MODEL, DIMENSION)
        assert delete_superseded(settings) == []


class TestFaults:
    def test_a_frozen_server_is_not_waited_for(
        self, servers: ServerControls, elastic: ElasticIndices
    ) -> None:
        server = servers.elasticsearch
        index = open_index(elastic.settings())
        index.add([document("loom")])
        connection, patient = index._connection, index._connection.client
        connection._client = patient.options(request_timeout=3.0)
        server.freeze()
        began = time.monotonic()
        with pytest.raises(TransientError, match="did not answer"):
            search_lexical(index, {"loom": 1.0}, 5, ANY)
        assert time.monotonic() - began < 5.8, "it was asked twice"
        server.thaw()
        connection._client = patient
        assert names(index, "loom") == {"loom"}
        index.close()
