"""Connection to Elasticsearch: one client per process, error translation, bulk writes.

The client library is imported on first use, so that commands that need no server do not wait for
the import.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from config.errors import MisconfiguredError, PermanentError, SkillbusError, TransientError
from config.secrets import read_secret, strip_passwords
from config.server_settings import ServerSettings
from config.tracing import span

if TYPE_CHECKING:
    from elasticsearch import ApiError, Elasticsearch

BULK_BYTES = 8 * 1024 * 1024
"""Approximate size of a bulk request; servers refuse 100 MB and recommend far less."""

_PUBLIC_UNREACHABLE = "the search index does not answer"
_PUBLIC_BUSY = "the search index is busy"
_RETRY_DELAYS_SECONDS = (0.1, 0.4, 1.0)
"""Pauses before the bulk items that a busy server rejected are sent again."""

_BUSY = frozenset({429, 503})
_NO_SHARD = "no_shard_available_action_exception"
_TRANSIENT_TYPES = frozenset({"search_context_missing_exception", _NO_SHARD})
"""Error types while shards start, as after a restart; some calls answer 404 with them."""

_SHARD_WAIT = "5s"


class BulkOperation(NamedTuple):
    """One item of a bulk request: `create`, or `delete` if `document` is None.

    alias: the write alias of the index. description: names the document in messages.
    """

    alias: str
    id: str
    document: bytes | None
    description: str


class MissingIndexError(TransientError):
    """An index was deleted while in use; opening the index set again creates or explains it."""


class ElasticsearchConnection:
    """A connection to the server in the settings. Creates its client on first use, and a new client
    after a fork. Threads may share it."""

    def __init__(self, servers: ServerSettings) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._client: Elasticsearch | None = None
        self._process = 0

    @property
    def address(self) -> str:
        """The server's URLs for messages, without passwords."""
        return f"Elasticsearch at {', '.join(strip_passwords(self._servers.elasticsearch))}"

    @property
    def client(self) -> Elasticsearch:
        """The client of this process; raises MisconfiguredError for unusable settings."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = _make_client(self._servers)
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        """Close the client of this process; the next use creates another."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None and self._process == os.getpid():
                client.close()

    @contextmanager
    def translate_errors(self) -> Iterator[Elasticsearch]:
        """Yield the client and translate its errors into errors of `config.errors`.

        Raises TransientError when the server is unreachable, slow, busy, full or read-only;
        MissingIndexError when an index was deleted; MisconfiguredError for refused credentials,
        certificates and addresses; PermanentError for requests that it will never accept.
        """
        client = self.client
        import elastic_transport
        from elasticsearch import ApiError, UnsupportedProductError

        try:
            yield client
        except UnsupportedProductError as error:
            raise self.incompatible_error(error) from error
        except ApiError as error:
            raise self._api_error(error) from error
        except elastic_transport.TlsError as error:
            raise MisconfiguredError(
                f"{self.address}: {error.message}; see servers.elasticsearch_ca_file"
            ) from error
        except elastic_transport.ConnectionTimeout as error:
            raise TransientError(
                f"{self.address} did not answer within {self._servers.timeout_seconds:g} s "
                "(servers.timeout_seconds)",
                public_message=_PUBLIC_UNREACHABLE,
            ) from error
        except elastic_transport.ConnectionError as error:
            raise TransientError(
                f"{self.address} cannot be reached: {error.message}",
                public_message=_PUBLIC_UNREACHABLE,
            ) from error
        except elastic_transport.TransportError as error:
            raise self.incompatible_error(error) from error

    def incompatible_error(self, error: object) -> MisconfiguredError:
        """Return the error for an answer that another server, or a proxy, must have given."""
        return MisconfiguredError(
            f"{self.address} does not answer like Elasticsearch 9 ({str(error)[:200]}); see "
            "servers.elasticsearch"
        )

    def _api_error(self, error: ApiError) -> SkillbusError:
        body = error.body if isinstance(error.body, dict) else {}
        return self.to_error(error.status_code, body.get("error", error.message))

    def to_error(self, status: int, cause: Any) -> SkillbusError:
        """Return the error for the status and `error` object of an answer or a bulk item."""
        kind, reason = _reason(cause)
        kinds = _kinds(cause)
        if "cluster_block_exception" in kinds or status == 429:
            return TransientError(
                f"{self.address} takes no writes or requests now ({reason}): it is busy, full "
                "or set read-only; free disk or lift the block, and restart workers after a "
                "reindex",
                public_message=_PUBLIC_BUSY,
            )
        if status in (401, 403) or "security_exception" in kinds:
            return MisconfiguredError(
                f"{self.address} refused the credentials ({reason}); see "
                "servers.elasticsearch_user and servers.elasticsearch_password_file"
            )
        if "media_type_header_exception" in kinds:
            return MisconfiguredError(f"{self.address} is no Elasticsearch 9 ({reason})")
        if "index_not_found_exception" in kinds:
            return MissingIndexError(
                f"{self.address}: {reason}; it was deleted while in use",
                public_message=_PUBLIC_UNREACHABLE,
            )
        if "index_closed_exception" in kinds:
            return TransientError(
                f"{self.address}: the index {cause.get('index', '')} is closed: open it, or wait "
                "until its snapshot is restored",
                public_message=_PUBLIC_UNREACHABLE,
            )
        if status == 408 or status >= 500 or kinds & _TRANSIENT_TYPES:
            return TransientError(
                f"{self.address} failed ({status}): {reason}", public_message=_PUBLIC_UNREACHABLE
            )
        if status == 413:
            return MisconfiguredError(
                f"{self.address} refuses a request for its size: raise http.max_content_length of "
                "Elasticsearch, and the limit of a proxy in front of it"
            )
        if not isinstance(cause, dict):
            return self.incompatible_error(f"{status}: {reason}")
        return PermanentError(
            f"{self.address} refused ({status}, {kind}): {reason}",
            public_message="the search index refused the request",
        )

    def mget(self, index: str, ids: Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """Return the answer of a multi-get for each id.

        Waits once for the shards of an index that another process is creating. Raises
        MissingIndexError, or TransientError for a document that cannot be read now: a busy, lost or
        closed shard is an error of its documents, which has no status.
        """
        with self.translate_errors() as client:
            found = client.mget(index=index, ids=list(ids), **options)["docs"]
            if any(_NO_SHARD in _kinds(one.get("error")) for one in found):
                client.cluster.health(index=index, wait_for_status="yellow", timeout=_SHARD_WAIT)
                found = client.mget(index=index, ids=list(ids), **options)["docs"]
        for one in found:
            if "error" in one:
                raise self.to_error(503, one["error"])
        return list(found)

    def create_index(self, name: str, **definition: Any) -> None:
        """Create an index unless there is one of this name.

        Raises MisconfiguredError if the server refuses it, as with too many shards.
        """
        with self.translate_errors() as client:
            answer = client.options(ignore_status=400).indices.create(index=name, **definition)
        cause = answer.get("error")
        if cause and "resource_already_exists_exception" not in _kinds(cause):
            raise MisconfiguredError(
                f"{self.address}: the index {name} cannot be created: {_reason(cause)[1]}"
            )

    # -- bulk

    def bulk(self, operations: Sequence[BulkOperation]) -> int:
        """Execute operations as `bulk_unless_refused` does; returns the number of documents that
        existed.

        Raises PermanentError for the first document that the server will never accept, after all
        other documents are written.
        """
        existed, refused = self.bulk_unless_refused(operations)
        for error in refused.values():
            raise error
        return existed

    def bulk_unless_refused(
        self, operations: Sequence[BulkOperation], *, wait: bool = False
    ) -> tuple[int, dict[str, SkillbusError]]:
        """Execute operations in requests of about BULK_BYTES.

        Returns the number of documents that existed, and by document id the errors of documents
        that the server will never accept. Creating a document that exists and deleting one that
        does not succeed without effect. wait: return when searches see the changes.

        Raises TransientError if a busy server still rejects items after some retries.
        """
        existed = 0
        refused: dict[str, SkillbusError] = {}
        for chunk in _chunks(operations):
            left = list(chunk)
            for delay in (*_RETRY_DELAYS_SECONDS, None):
                left, known, errors = self._bulk_once(left, wait)
                existed += known
                refused.update(errors)
                if not left:
                    break
                if delay is None:
                    raise TransientError(
                        f"{self.address} is too busy: it rejected {len(left)} of {len(chunk)} "
                        "writes",
                        public_message=_PUBLIC_BUSY,
                    )
                time.sleep(delay)
        return existed, refused

    def _bulk_once(
        self, operations: Sequence[BulkOperation], wait: bool
    ) -> tuple[list[BulkOperation], int, dict[str, SkillbusError]]:
        """Send one bulk request.

        Returns the operations to retry, the number of documents that existed, and the errors of
        the documents that are never accepted, by id.
        """
        lines: list[Any] = []
        for one in operations:
            action = "delete" if one.document is None else "create"
            lines.append({action: {"_index": one.alias, "_id": one.id}})
            if one.document is not None:
                lines.append(one.document)
        with self.translate_errors() as client:
            answer = client.bulk(
                operations=lines,
                refresh="wait_for" if wait else False,
                # Otherwise the server would create a deleted index again, with a guessed mapping.
                require_alias=True,
                filter_path=["errors", "items.*.status", "items.*.error"],
            )
        if not answer["errors"] and all(one.document is not None for one in operations):
            return [], 0, {}
        retry, known, refused = [], 0, {}
        for one, item in zip(operations, answer["items"], strict=True):
            result = next(iter(item.values()))
            status = int(result["status"])
            if status < 300 or (one.document is None and status == 404 and "error" not in result):
                continue
            if status == 409 and one.document is not None:
                known += 1
            elif status in _BUSY and "cluster_block_exception" not in _kinds(result["error"]):
                retry.append(one)
            else:
                refused[one.id] = self._item_error(one, status, result["error"])
        return retry, known, refused

    def _item_error(self, one: BulkOperation, status: int, cause: Any) -> SkillbusError:
        error = self.to_error(status, cause)
        public_message = error.public_message
        return type(error)(f"{one.description}: {error}", public_message=public_message)


def _traced_client_type() -> type[Elasticsearch]:
    """Return the client class with a trace span for each request, without request bodies.

    The library's own spans would begin a trace with each probe, and need the global tracer.
    """
    from elasticsearch import Elasticsearch

    class TracedElasticsearch(Elasticsearch):
        def perform_request(self, method: str, path: str, **options: Any) -> Any:
            operation = options.get("endpoint_id") or method
            attributes = {
                "db.system.name": "elasticsearch",
                "db.operation.name": operation,
                "http.request.method": method,
            }
            with span(f"elasticsearch {operation}", attributes, "client") as opened:
                response = super().perform_request(method, path, **options)
                opened.set_attributes(
                    {
                        "server.address": response.meta.node.host,
                        "server.port": response.meta.node.port,
                        "db.response.status_code": str(response.meta.status),
                    }
                )
            return response

    return TracedElasticsearch


def _make_client(servers: ServerSettings) -> Elasticsearch:
    urls = [url.strip().rstrip("/") for url in servers.elasticsearch.split(",") if url.strip()]
    if not urls:
        raise MisconfiguredError("servers.elasticsearch is empty; name its address")
    if any("@" in url for url in urls):
        raise MisconfiguredError(
            "servers.elasticsearch: no user or password in the address; see "
            "servers.elasticsearch_user and servers.elasticsearch_password_file"
        )
    password = read_secret(
        servers.elasticsearch_password_file, "servers.elasticsearch_password_file"
    )
    options: dict[str, Any] = {}
    if password is not None:
        options["basic_auth"] = (servers.elasticsearch_user, password)
    if servers.elasticsearch_ca_file is not None:
        if not servers.elasticsearch_ca_file.is_file():
            raise MisconfiguredError(
                f"servers.elasticsearch_ca_file: {servers.elasticsearch_ca_file}: no such file"
            )
        options["ca_certs"] = str(servers.elasticsearch_ca_file)
    # The library logs each lost connection with a traceback; connections that matter raise errors.
    logging.getLogger("elastic_transport").setLevel(logging.ERROR)
    try:
        return _traced_client_type()(
            urls,
            request_timeout=servers.timeout_seconds,
            max_retries=1,
            retry_on_timeout=False,
            retry_on_status=(),
            **options,
        )
    except (ValueError, OSError) as error:
        raise MisconfiguredError(f"servers.elasticsearch: {error}") from error


def _reason(cause: Any) -> tuple[str, str]:
    """Return (type, reason) of an error object; the reason includes that of the root cause."""
    if not isinstance(cause, dict):
        return "", str(cause)
    inner = cause
    while isinstance(inner.get("caused_by"), dict):
        inner = inner["caused_by"]
    if inner is cause and cause.get("root_cause"):  # the reason of a search is "all shards failed"
        inner = cause["root_cause"][0]
    kind = str(cause.get("type", ""))
    reason = str(cause.get("reason", kind))
    if inner.get("reason", reason) != reason:
        reason += f" ({inner['reason']})"
    return kind, reason


def _kinds(cause: Any) -> set[str]:
    """Return the types of an error object and of its root causes."""
    if not isinstance(cause, dict):
        return set()
    return {str(one.get("type", "")) for one in (cause, *cause.get("root_cause", ()))}


def _chunks(operations: Sequence[BulkOperation]) -> Iterator[list[BulkOperation]]:
    """Yield operations in lists of about BULK_BYTES."""
    chunk: list[BulkOperation] = []
    size = 0
    for one in operations:
        weight = len(one.document or b"") + 200
        if chunk and size + weight > BULK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += weight
    if chunk:
        yield chunk
