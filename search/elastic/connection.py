"""The connection to Elasticsearch: one client a process, its errors in our terms, bulk writes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from config.errors import MisconfiguredError, PermanentError, SkillbusError, TransientError
from config.secrets import read_secret, strip_password
from config.settings import ServerSettings

if TYPE_CHECKING:
    from elasticsearch import ApiError, Elasticsearch

BULK_BYTES = 8 * 1024 * 1024
"""About so much goes in one bulk request; servers refuse 100 MB and want far less."""

_PATIENCE_SECONDS = (0.1, 0.4, 1.0)
"""Waits before documents that a busy server turned away are offered again."""

_BUSY = frozenset({429, 503})
_PASSING = frozenset({"search_context_missing_exception", "no_shard_available_action_exception"})
"""While shards start, as after a restart; some calls answer 404 with it."""


class BulkOperation(NamedTuple):
    """One line of a bulk request: `create` with a document, or `delete` with none.

    target: the alias it goes through. about: the document in words, for messages.
    """

    target: str
    id: str
    document: bytes | None
    description: str


class MissingIndexError(TransientError):
    """An index that was there is gone: who opens it again makes it again, or says what to do."""


class ElasticsearchConnection:
    """Makes its client on first use, and another one after a fork. Threads may share it."""

    def __init__(self, servers: ServerSettings) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._client: Elasticsearch | None = None
        self._process = 0

    @property
    def address(self) -> str:
        """The server as messages name it."""
        urls = self._servers.elasticsearch.split(",")
        return f"Elasticsearch at {', '.join(strip_password(url.strip()) for url in urls)}"

    @property
    def client(self) -> Elasticsearch:
        """The client of this process; raises SetupError for settings that cannot be used."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = _make_client(self._servers)
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        """Close this process's client; the next use makes another."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None and self._process == os.getpid():
                client.close()

    @contextmanager
    def translate_errors(self) -> Iterator[Elasticsearch]:
        """The client; what it raises comes out as one of our errors, naming the server.

        Raises TransientError when the server is away, busy, full or read-only; MissingIndexError
        when an index is gone; SetupError for refused credentials, certificates and addresses;
        PermanentError for what it will never accept.
        """
        client = self.client
        import elastic_transport
        from elasticsearch import ApiError, UnsupportedProductError

        try:
            yield client
        except UnsupportedProductError as error:
            raise self._stranger(error) from error
        except ApiError as error:
            raise self._refused(error) from error
        except elastic_transport.TlsError as error:
            raise MisconfiguredError(
                f"{self.address}: {error.message}; see servers.elasticsearch_ca_file"
            ) from error
        except elastic_transport.ConnectionTimeout as error:
            raise TransientError(
                f"{self.address} did not answer within {self._servers.timeout_seconds:g} s "
                "(servers.timeout_seconds)"
            ) from error
        except elastic_transport.ConnectionError as error:
            raise TransientError(f"{self.address} cannot be reached: {error.message}") from error
        except elastic_transport.TransportError as error:
            raise self._stranger(error) from error

    def _stranger(self, error: Exception) -> SkillbusError:
        return MisconfiguredError(
            f"{self.address} does not answer like Elasticsearch 9 ({error}); see "
            "servers.elasticsearch"
        )

    def _refused(self, error: ApiError) -> SkillbusError:
        body = error.body if isinstance(error.body, dict) else {}
        return self.to_error(error.status_code, body.get("error", error.message))

    def to_error(self, status: int, cause: Any) -> SkillbusError:
        """What a status and the cause beside it, of a request or of one item, mean to us."""
        kind, reason = _reason(cause)
        kinds = _kinds(cause)
        if "cluster_block_exception" in kinds or status == 429:
            return TransientError(
                f"{self.address} takes no writes or requests now ({reason}): it is busy, full "
                "or set read-only; free disk or lift the block, and restart workers after a reindex"
            )
        if status in (401, 403):
            return MisconfiguredError(
                f"{self.address} refused the credentials ({reason}); see "
                "servers.elasticsearch_user and servers.elasticsearch_password_file"
            )
        if "media_type_header_exception" in kinds:
            return MisconfiguredError(f"{self.address} is no Elasticsearch 9 ({reason})")
        if "index_not_found_exception" in kinds:
            return MissingIndexError(f"{self.address}: {reason}; it was there and is gone")
        if status == 408 or status >= 500 or kinds & _PASSING:
            return TransientError(f"{self.address} failed ({status}): {reason}")
        return PermanentError(f"{self.address} refused ({status}, {kind}): {reason}")

    # -- bulk

    def bulk(self, operations: Sequence[BulkOperation], *, wait: bool = False) -> int:
        """Write in requests of some megabytes; every item's result is looked at on its own.

        A document that exists and one to delete that does not are success; the number of those
        that existed is returned. With `wait` the call returns when searches see what it wrote.
        Items that a busy server turned away are offered again for a while, then TransientError
        says how many are left; PermanentError names the first document that is never accepted,
        when all others have been written.
        """
        existed, refused = 0, []
        for chunk in _chunks(operations):
            left = list(chunk)
            for pause in (*_PATIENCE_SECONDS, None):
                left, known, errors = self._bulk_once(left, wait)
                existed += known
                refused += errors
                if not left:
                    break
                if pause is None:
                    raise TransientError(
                        f"{self.address} is too busy: {len(left)} of {len(chunk)} writes were "
                        "turned away"
                    )
                time.sleep(pause)
        if refused:
            raise refused[0]
        return existed

    def _bulk_once(
        self, operations: Sequence[BulkOperation], wait: bool
    ) -> tuple[list[BulkOperation], int, list[SkillbusError]]:
        """(turned away, existed already, never accepted)."""
        lines: list[Any] = []
        for one in operations:
            action = "delete" if one.document is None else "create"
            lines.append({action: {"_index": one.target, "_id": one.id}})
            if one.document is not None:
                lines.append(one.document)
        with self.translate_errors() as client:
            answer = client.bulk(
                operations=lines,
                refresh="wait_for" if wait else False,
                # a lost index must not come back by itself with a mapping that nobody wrote
                require_alias=True,
                filter_path=["errors", "items.*.status", "items.*.error"],
            )
        if not answer["errors"] and all(one.document is not None for one in operations):
            return [], 0, []
        again, known, refused = [], 0, []
        for one, item in zip(operations, answer["items"], strict=True):
            result = next(iter(item.values()))
            status = int(result["status"])
            if status < 300 or (one.document is None and status == 404 and "error" not in result):
                continue
            if status == 409 and one.document is not None:
                known += 1
            elif status in _BUSY and "cluster_block_exception" not in _kinds(result["error"]):
                again.append(one)
            else:
                refused.append(self._refused_item(one, status, result["error"]))
        return again, known, refused

    def _refused_item(self, one: BulkOperation, status: int, cause: Any) -> SkillbusError:
        error = self.to_error(status, cause)
        return type(error)(f"{one.description}: {error}")


def _make_client(servers: ServerSettings) -> Elasticsearch:
    from elasticsearch import Elasticsearch

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
    # it warns of each lost connection with a traceback, and we raise for those that matter
    logging.getLogger("elastic_transport").setLevel(logging.ERROR)
    try:
        return Elasticsearch(
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
    """(type, reason) of an error object, the root cause's where the outer one says little."""
    if not isinstance(cause, dict):
        return "", str(cause)
    inner = cause
    while isinstance(inner.get("caused_by"), dict):
        inner = inner["caused_by"]
    kind = str(cause.get("type", ""))
    reason = str(cause.get("reason", kind))
    if inner is not cause and inner.get("reason"):
        reason += f" ({inner['reason']})"
    return kind, reason


def _kinds(cause: Any) -> set[str]:
    """The types of an error object and of its root causes."""
    if not isinstance(cause, dict):
        return set()
    return {str(one.get("type", "")) for one in (cause, *cause.get("root_cause", ()))}


def _chunks(operations: Sequence[BulkOperation]) -> Iterator[list[BulkOperation]]:
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
