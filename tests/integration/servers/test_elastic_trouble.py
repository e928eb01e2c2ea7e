"""What the Elasticsearch adapter makes of refusals, overload and strangers."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.server_settings import ServerSettings
from config.settings import HistorySettings
from search.elastic import connection
from search.elastic.connection import BulkOperation, ElasticsearchConnection
from search.elastic.document_codec import document_id
from search.elastic.health import index_health
from search.elastic.index import ElasticsearchIndex
from search.elastic.index_sets import SCHEMA, IndexIdentity, IndexSet
from search.elastic.revision_history import ElasticsearchRevisionHistory
from search.protocol import Filters
from search.revision_history import HistoryLimits, KeptRevision
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.program.answers import Answer, Request, answering
from tests.support.program.secrecy import made_up
from tests.support.samples.documents import tiny_document
from tests.support.samples.searches import search_lexical


def settings(url: str, **changed: object) -> ServerSettings:
    values = {"broker": "redis://x:1/0", "neo4j": "bolt://x:1", "elasticsearch": url}
    return ServerSettings(**(values | changed))


def error(kind: str, reason: str = "because") -> dict[str, object]:
    return {"error": {"type": kind, "reason": reason, "root_cause": [{"type": kind}]}}


def open_on(url: str, **changed: object) -> ElasticsearchIndex:
    return ElasticsearchIndex(settings(url, **changed), "m:1", 4, writable=True)


BLOCK = error("cluster_block_exception", "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk …]")

LIMITS = HistoryLimits(5, 1_000_000)

REFUSALS = [
    (Answer(503, error("no_master", "starting")), TransientError, "failed .503.: starting"),
    (Answer(429, error("es_rejected_execution_exception")), TransientError, "takes no writes"),
    (Answer(429, BLOCK), TransientError, "free disk"),
    (Answer(403, BLOCK), TransientError, "lift the block"),
    (Answer(502, text="<h1>Bad gateway</h1>"), TransientError, "failed .502"),
    (
        Answer(401, error("security_exception", "no user")),
        MisconfiguredError,
        "elasticsearch_password_file",
    ),
    (
        Answer(403, error("security_exception", "no right")),
        MisconfiguredError,
        "elasticsearch_user",
    ),
    (Answer(400, error("illegal_argument_exception")), PermanentError, "refused .400"),
    (Answer(400, error("media_type_header_exception")), MisconfiguredError, "no Elasticsearch 9"),
    (Answer(413, text=""), MisconfiguredError, "http.max_content_length"),
    (
        Answer(404, text="default backend - 404", product=""),
        MisconfiguredError,
        "does not answer like Elasticsearch",
    ),
    (Answer(200, {}, product=""), MisconfiguredError, "does not answer like Elasticsearch"),
    (
        Answer(200, text="<h1>It works!</h1>", product=""),
        MisconfiguredError,
        "does not answer like Elasticsearch",
    ),
]


@pytest.mark.parametrize(("answer", "kind", "message"), REFUSALS)
def test_refusals_are_distinguished(
    answer: Answer, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(made_up("of-elastic") + "\n")
    with answering(lambda _: answer) as url:
        index = open_on(url, elasticsearch_password_file=secret)
        with pytest.raises(kind, match=message) as caught:
            index.list_keys()
        assert type(caught.value) is kind
        assert url in str(caught.value)
        assert made_up("of-elastic") not in str(caught.value)
        health = index_health(settings(url), "m:1", 4)
        assert health.problems
        index.close()


def test_the_password_is_sent_and_the_address_has_none(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(made_up("of-elastic") + "\n")
    seen: list[str] = []

    def answer(request: Request) -> Answer:
        seen.append(request.headers.get("authorization", ""))
        return Answer(200, {"count": 3})

    with answering(answer) as url:
        connection = ElasticsearchConnection(settings(url, elasticsearch_password_file=secret))
        with connection.translate_errors() as elastic:
            elastic.count(index="x")
        connection.close()
    shown = base64.b64encode(f"elastic:{made_up('of-elastic')}".encode()).decode()
    assert seen == [f"Basic {shown}"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"elasticsearch": "http://user:secret@127.0.0.1:9200"}, "no user or password"),
        ({"elasticsearch": "127.0.0.1"}, "scheme"),
        ({"elasticsearch": " , "}, "empty"),
        ({"elasticsearch_password_file": Path("/nowhere/at/all")}, "password_file"),
        (
            {
                "elasticsearch": "https://127.0.0.1:9200",
                "elasticsearch_ca_file": Path("/nowhere/at/all"),
            },
            "elasticsearch_ca_file",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(changed: dict[str, object], message: str) -> None:
    index = open_on(**({"url": "http://127.0.0.1:9"} | _renamed(changed)))
    with pytest.raises(MisconfiguredError, match=message) as caught:
        index.list_keys()
    assert "secret" not in str(caught.value)


def _renamed(changed: dict[str, object]) -> dict[str, Any]:
    return {"url" if name == "elasticsearch" else name: value for name, value in changed.items()}


def test_no_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    index = open_on(url)
    with pytest.raises(TransientError, match="cannot be reached"):
        search_lexical(index, {"loom": 1.0}, 5, Filters())
    health = index_health(settings(url), "m:1", 4)
    assert "cannot be reached" in health.problems[0]


def test_too_slow() -> None:
    with answering(lambda _: Answer(seconds=1.0)) as url:
        index = open_on(url, timeout_seconds=0.2)
        with pytest.raises(TransientError, match=r"within 0\.2 s"):
            index.list_keys()
        index.close()


def test_a_plain_server_where_https_is_asked_for() -> None:
    with answering(lambda _: Answer()) as url:
        index = open_on(url.replace("http:", "https:"))
        with pytest.raises(TransientError, match="https:"):
            index.list_keys()
        index.close()


class TestBulk:
    """Each item of a bulk request is judged on its own."""

    @pytest.fixture(autouse=True)
    def _no_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "_RETRY_DELAYS_SECONDS", (0.01, 0.01))

    def write(self, url: str, names: str) -> int:
        connection = ElasticsearchConnection(settings(url))
        try:
            return connection.bulk(
                [BulkOperation("a", name, b"{}", f"skill {name}") for name in names]
            )
        finally:
            connection.close()

    def test_only_what_was_turned_away_is_offered_again(self) -> None:
        offered: list[list[str]] = []

        def answer(request: Request) -> Answer:
            ids = [line["create"]["_id"] for line in request.lines[::2]]
            offered.append(ids)
            busy = {"status": 429, **error("es_rejected_execution_exception")}
            items = [
                {"create": busy if name == "b" and len(offered) < 3 else {"status": 201}}
                for name in ids
            ]
            return Answer(200, {"errors": True, "items": items})

        with answering(answer) as url:
            assert self.write(url, "abc") == 0
        assert offered == [["a", "b", "c"], ["b"], ["b"]]

    def test_a_server_that_stays_busy_is_left_alone(self) -> None:
        def answer(request: Request) -> Answer:
            items = [
                {"create": {"status": 503, **error("unavailable_shards_exception")}}
                for _ in request.lines[::2]
            ]
            return Answer(200, {"errors": True, "items": items})

        with answering(answer) as url, pytest.raises(TransientError, match="2 of 2 writes"):
            self.write(url, "ab")

    def test_what_exists_is_success(self) -> None:
        known = {"create": {"status": 409, **error("version_conflict_engine_exception")}}
        items = [known, {"create": {"status": 201}}]
        with answering(lambda _: Answer(200, {"errors": True, "items": items})) as url:
            assert self.write(url, "ab") == 1

    @pytest.mark.parametrize(
        ("item", "kind"),
        [
            ({"status": 400, **error("document_parsing_exception", "bad")}, PermanentError),
            ({"status": 403, **BLOCK}, TransientError),
            ({"status": 429, **BLOCK}, TransientError),
            ({"status": 404, **error("index_not_found_exception")}, TransientError),
        ],
    )
    def test_a_refused_document_is_named(self, item: dict[str, object], kind: type) -> None:
        items = [{"create": {"status": 201}}, {"create": item}]
        with (
            answering(lambda _: Answer(200, {"errors": True, "items": items})) as url,
            pytest.raises(kind, match="skill b: Elasticsearch at http"),
        ):
            self.write(url, "ab")

    def test_large_batches_go_in_several_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "BULK_BYTES", 1_000)
        sizes: list[int] = []

        def answer(request: Request) -> Answer:
            sizes.append(len(request.lines) // 2)
            items = [{"create": {"status": 201}} for _ in request.lines[::2]]
            return Answer(200, {"errors": False, "items": items})

        with answering(answer) as url:
            self.write(url, "abcdefgh")
        assert sizes == [4, 4]


def test_one_failed_search_of_several_is_not_an_empty_answer() -> None:
    def answer(request: Request) -> Answer:
        if "_msearch" in request.path:
            failed = {"status": 503, **error("search_phase_execution_exception", "shard lost")}
            return Answer(200, {"responses": [failed]})
        if request.path.startswith("/_alias"):
            return Answer(200, {"skillbus-m-1-skills": {"aliases": {}}})
        meta = {"skillbus": {"schema": "9", "model": "m:1", "dimension": 4}}
        return Answer(200, {"skillbus-m-1-skills": {"mappings": {"_meta": meta}}})

    with answering(answer) as url:
        index = open_on(url)
        with pytest.raises(MisconfiguredError, match="reindex"):
            index.list_keys()
        chosen = index._sets.get_live()
        assert chosen is not None
        given = ElasticsearchIndex(settings(url), "m:1", 4, writable=False, index_set=chosen)
        with pytest.raises(TransientError, match="shard lost"):
            search_lexical(given, {"loom": 1.0}, 5, Filters())
        with pytest.raises(PermanentError, match="reading only"):
            given.delete([RevisionKey("home:a", 1)])
        given.close()
        index.close()


@pytest.mark.parametrize("lost", [1, 2])
def test_searches_that_a_node_was_lost_in_are_repeated_once(lost: int) -> None:
    failed = {"status": 502, **error("search_phase_execution_exception", "Partial shards failure")}
    hit = {"_score": 2.0, "fields": {"skill_id": ["home:a"], "seq": [1]}}
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        found = {"status": 200, "hits": {"hits": [hit]}}
        return Answer(200, {"responses": [failed if len(requests) <= lost else found]})

    with answering(answer) as url:
        chosen = IndexSet("skillbus-m", IndexIdentity(SCHEMA, "m:1", 4))
        index = ElasticsearchIndex(settings(url), "m:1", 4, writable=False, index_set=chosen)
        if lost == 1:
            (found,) = search_lexical(index, {"loom": 1.0}, 5, Filters())
            assert found.key == RevisionKey("home:a", 1)
        else:
            with pytest.raises(TransientError, match=r"failed .502.: Partial shards failure"):
                search_lexical(index, {"loom": 1.0}, 5, Filters())
        index.close()
    assert len(requests) == 2


READS: list[Callable[[ServerSettings], object]] = [
    lambda servers: open_set(servers).list_keys(),
    lambda servers: open_set(servers).max_seq(),
    lambda servers: ElasticsearchRevisionHistory(servers, LIMITS).get_pins(),
    lambda servers: ElasticsearchRevisionHistory(servers, LIMITS).max_seq(),
]


def open_set(servers: ServerSettings) -> ElasticsearchIndex:
    """An index whose set is known."""
    chosen = IndexSet("skillbus-m", IndexIdentity(SCHEMA, "m:1", 4))
    return ElasticsearchIndex(servers, "m:1", 4, writable=True, index_set=chosen)


@pytest.mark.parametrize("read", READS)
def test_an_answer_of_some_of_the_shards_is_none(read: Callable[[ServerSettings], object]) -> None:
    def answer(request: Request) -> Answer:
        if "/_search" not in request.path:
            return Answer(200, {"id": "context"})
        if "allow_partial_search_results=false" in request.path:
            return Answer(503, error("search_phase_execution_exception", "shard lost"))
        found = {"hits": {"hits": []}, "aggregations": {"newest": {"value": 1}}}
        return Answer(200, {"_shards": {"total": 2, "failed": 1}, **found})

    with answering(answer) as url, pytest.raises(TransientError, match="shard lost"):
        read(settings(url))


@pytest.mark.parametrize(
    "kind",
    [
        "es_rejected_execution_exception",
        "circuit_breaking_exception",
        "node_not_connected_exception",
    ],
)
def test_a_document_that_cannot_be_read_now_is_not_refused_for_good(kind: str) -> None:
    """A multi-get says so in the answer for the document, without a status."""

    def answer(request: Request) -> Answer:
        return Answer(
            200, {"docs": [{"_id": one, **error(kind)} for one in request.lines[0]["ids"]]}
        )

    key = RevisionKey("home:a", 1)
    with answering(answer) as url:
        index, history = (
            open_set(settings(url)),
            ElasticsearchRevisionHistory(settings(url), LIMITS),
        )
        reads: list[Callable[[], object]] = [
            lambda: index.complete_keys([key]),
            lambda: index.get_revisions([key]),
            lambda: history.find_kept([key]),
        ]
        for read in reads:
            with pytest.raises(TransientError, match="because"):
                read()
        index.close()
        history.close()


def test_of_a_skill_that_is_refused_nothing_can_be_found() -> None:
    bad, good = tiny_document("kiln"), tiny_document("loom")
    found: list[str] = []

    def answer(request: Request) -> Answer:
        items = []
        for line in request.lines[::2]:
            index, name = line["create"]["_index"], line["create"]["_id"]
            is_refused = index.endswith("-revisions-write") and name == document_id(bad.key)
            refusal = {"status": 400, **error("document_parsing_exception", "bad")}
            items.append({"create": refusal if is_refused else {"status": 201}})
            found.extend([name] * index.endswith("-skills-write"))
        return Answer(200, {"errors": True, "items": items})

    with answering(answer) as url, pytest.raises(PermanentError, match="home:kiln@1"):
        open_set(settings(url)).add([bad, good])
    assert found == [document_id(good.key)]


def test_vectors_are_deleted_once_the_revision_is() -> None:
    """A process that stores vectors looks afterwards whether the revision is still there."""
    deleted: list[list[str]] = []

    def answer(request: Request) -> Answer:
        if "/_bulk" in request.path:
            deleted.append([line["delete"]["_index"] for line in request.lines])
        items = [{"delete": {"status": 200}} for _ in request.lines]
        return Answer(200, {"errors": False, "items": items})

    with answering(answer) as url:
        open_set(settings(url)).delete([RevisionKey("home:a", 1)])
    assert deleted[0] == ["skillbus-m-skills-write"]
    assert "skillbus-m-vectors-write" in deleted[1]


def test_long_histories_of_many_skills_are_written_in_parts() -> None:
    """A server refuses requests of more than 100 MB."""
    written: list[int] = []

    def answer(request: Request) -> Answer:
        if "/_mget" in request.path:
            return Answer(200, {"docs": [{"found": False} for _ in request.lines[0]["ids"]]})
        if "/_mapping" in request.path:
            meta = {"skillbus": {"history": 1}}
            return Answer(200, {"skillbus-history": {"mappings": {"_meta": meta}}})
        if "/_bulk" in request.path:
            written.append(len(request.lines) // 2)
        return Answer(200, {"items": [{"create": {"status": 201}} for _ in request.lines[::2]]})

    parsed = parse_skill("a", b"---\nname: a\ndescription: b\n---\n# A\n")
    keys = [RevisionKey(f"home:{number}", 1) for number in range(40)]
    with answering(answer) as url:
        history = ElasticsearchRevisionHistory(settings(url), LIMITS)
        history.keep([KeptRevision(key, "hash", parsed) for key in keys])
        history.close()
    assert sum(written) == len(keys)
    assert max(written) * HistorySettings().bytes * 4 / 3 < 100_000_000
