"""Client of one Neo4j server or cluster: statements, retries, time limits, error translation.

The driver is created on the first call, so that processes forked earlier do not share it.
"""

from __future__ import annotations

import os
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from neo4j import READ_ACCESS, WRITE_ACCESS, Driver, GraphDatabase, Query, Record, Session
from neo4j.exceptions import (
    AuthConfigurationError,
    AuthError,
    ClientError,
    ConfigurationError,
    DatabaseError,
    DriverError,
    Forbidden,
    IncompleteCommit,
    Neo4jError,
    ServiceUnavailable,
    SessionExpired,
    UnsupportedServerProduct,
)
from neo4j.exceptions import TransientError as PassingError

from config.backoff import Backoff
from config.errors import (
    MisconfiguredError,
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from config.secrets import read_secret, strip_password
from config.server_settings import ServerSettings
from config.tracing import span
from graph.neo4j.call_watchdog import CallWatchdog, WatchedCall

T = TypeVar("T")

Rows = list[list[Any]]
Run = Callable[..., Rows]
"""Runs a statement with keyword parameters in a transaction, and returns its records as lists."""

_PUBLIC_MESSAGE = "the catalog does not answer"
_GRACE_SECONDS = 0.5
_RECONNECT_SECONDS = 2.0
_REFUSED_LOGIN_SECONDS = 10.0
"""Pause after a refused login: several in a row lock the account, even for the right password."""
_FIRST_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 0.5
_DATABASE_MISSING = "Neo.ClientError.Database.DatabaseNotFound"
_CONCURRENTLY_DELETED = "Neo.ClientError.Statement.EntityNotFound"
_PASSING_CODES = (
    _CONCURRENTLY_DELETED,
    "Neo.ClientError.Transaction.",
    "Neo.ClientError.Security.AuthenticationRateLimit",
)


class Neo4jClient:
    """Client that runs statements; errors of server and connection are raised as SkillbusError.

    Statements are retried after conflicts with other writers and lost connections, so they must be
    idempotent. Safe to share among threads.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """Create the client; it connects on the first call."""
        self._settings = settings
        self._address = strip_password(settings.neo4j)
        self._host = urlsplit(settings.neo4j).hostname or ""
        self._timeout_seconds = settings.timeout_seconds
        self._lock = threading.Lock()
        self._driver: Driver | None = None
        self._inherited: list[Driver] = []
        self._pid = 0
        self._closed = False
        self._refused: tuple[float, MisconfiguredError] | None = None
        self._bookmarks = GraphDatabase.bookmark_manager()
        self._watch = CallWatchdog(self._abort_connections)

    @property
    def address(self) -> str:
        """The server's address without a password."""
        return self._address

    def read(self, statement: str, **parameters: object) -> Rows:
        """Run one statement that only reads, in one round trip; return its records as lists."""
        return self._retrying(
            lambda driver, _: self._run(driver, READ_ACCESS, statement, parameters), "read"
        )

    def write(self, statement: str, **parameters: object) -> Rows:
        """Run one statement on the leader, as a transaction; return its records as lists."""
        return self._retrying(
            lambda driver, _: self._run(driver, WRITE_ACCESS, statement, parameters), "write"
        )

    def run_transaction(
        self, work: Callable[[Run, bool], T], seconds: float | None = None, *, stream: bool = False
    ) -> T:
        """Run `work(run, retried)` as one transaction and return its result.

        retried: True if an earlier attempt may have been committed although its answer was lost.
        seconds: time limit, by default that of a call. stream: `run` returns an iterator of rows,
        to be read before the next statement, for results that may not fit into memory.
        """
        limit = seconds or self._timeout_seconds

        def attempt(driver: Driver, retried: bool) -> T:
            with self._session(driver, WRITE_ACCESS) as session:
                transaction = session.begin_transaction(timeout=limit)

                def run(statement: str, **parameters: object) -> Any:
                    result = transaction.run(statement, parameters)
                    return map(Record.values, result) if stream else result.values()

                result = work(run, retried)
                transaction.commit()
                return result

        return self._retrying(attempt, "transaction", limit)

    def close(self) -> None:
        """Close the connections; calls afterwards raise UsageError."""
        with self._lock:
            self._closed = True
            driver, self._driver = self._driver, None
        self._watch.close()
        if driver is not None:
            driver.close()

    def _run(
        self, driver: Driver, access: str, statement: str, parameters: dict[str, object]
    ) -> Rows:
        with self._session(driver, access) as session:
            query = Query(statement, timeout=self._timeout_seconds)
            return session.run(query, parameters).values()

    @contextmanager
    def _session(self, driver: Driver, access: str) -> Iterator[Session]:
        """Open a session that is closed at the end, or cancelled after an interrupt.

        Ctrl-C and the end of a worker process raise KeyboardInterrupt and SystemExit anywhere in
        the code. Closing the session would then continue to read the interrupted answer, and the
        driver would raise BufferError instead. After CancelledError it drops the connection.
        """
        interrupt: BaseException | None = None
        with (
            suppress(CancelledError),
            driver.session(
                database=self._settings.neo4j_database,
                default_access_mode=access,
                bookmark_manager=self._bookmarks,
            ) as session,
        ):
            try:
                yield session
            except (KeyboardInterrupt, SystemExit) as error:
                interrupt = error
                raise CancelledError from error
        if interrupt is not None:
            raise interrupt

    def _retrying(
        self, attempt: Callable[[Driver, bool], T], operation: str, limit: float | None = None
    ) -> T:
        """Call `_repeat` within a span of the trace. operation: read, write or transaction."""
        attributes = {
            "db.system.name": "neo4j",
            "db.operation.name": operation,
            "db.namespace": self._settings.neo4j_database,
            "server.address": self._host,
        }
        with span(f"neo4j {operation}", attributes, "client"):
            return self._repeat(attempt, limit or self._timeout_seconds)

    def _repeat(self, attempt: Callable[[Driver, bool], T], limit: float) -> T:
        """Repeat the attempt until it succeeds, fails permanently, or the time limit is over."""
        started = time.monotonic()
        backoff, retried = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS), False
        while True:
            driver, watch = self._connected()
            call = watch.start_call(limit + _GRACE_SECONDS)
            try:
                return attempt(driver, retried)
            except (Neo4jError, DriverError, OSError) as error:
                elapsed, pause = time.monotonic() - started, backoff.pause()
                if elapsed + pause > _retry_seconds(error, call, limit):
                    raise self._translated(error, call, limit) from error
                retried = retried or not isinstance(error, Neo4jError)
            finally:
                watch.finish_call(call)
            time.sleep(pause)

    def _connected(self) -> tuple[Driver, CallWatchdog]:
        """Return the driver of this process, created if needed, and its watchdog."""
        with self._lock:
            if self._closed:
                raise UsageError(f"the catalog at {self._address} has been closed")
            if self._refused is not None and time.monotonic() < self._refused[0]:
                raise self._refused[1]
            if self._driver is not None and self._pid != os.getpid():
                # Its sockets belong to the parent process and must be neither used nor closed here.
                self._inherited.append(self._driver)
                self._driver, self._watch = None, CallWatchdog(self._abort_connections)
            if self._driver is None:
                self._driver, self._pid = self._open(), os.getpid()
            return self._driver, self._watch

    def _open(self) -> Driver:
        settings = self._settings
        password = read_secret(settings.neo4j_password_file, "servers.neo4j_password_file")
        try:
            return GraphDatabase.driver(
                settings.neo4j,
                auth=None if password is None else (settings.neo4j_user, password),
                user_agent="skillbus",
                telemetry_disabled=True,
                notifications_min_severity="OFF",
                connection_timeout=self._timeout_seconds,
                connection_write_timeout=self._timeout_seconds,
                connection_acquisition_timeout=self._timeout_seconds,
                liveness_check_timeout=30.0,
            )
        except (ConfigurationError, ValueError) as error:
            raise MisconfiguredError(
                f"servers.neo4j: {self._address} cannot be used: {error}"
            ) from None

    def _abort_connections(self) -> None:
        """Close all connections, which ends all calls in flight; the next call connects again."""
        with self._lock:
            driver, self._driver = self._driver, None
        if driver is not None:
            with suppress(Neo4jError, DriverError, OSError):  # its server does not answer
                driver.close()

    def _translated(self, error: Exception, call: WatchedCall, limit: float) -> SkillbusError:
        """Return the SkillbusError for an error of the driver."""
        name = f"Neo4j at {self._address}"
        if call.expired:
            return TransientError(
                f"{name} did not answer within {limit:g} s", public_message=_PUBLIC_MESSAGE
            )
        if isinstance(error, (AuthError, AuthConfigurationError)):
            refused = MisconfiguredError(
                f"{name} refuses the login as {self._settings.neo4j_user}: check "
                "servers.neo4j_user and the file of servers.neo4j_password_file"
            )
            self._refused = (time.monotonic() + _REFUSED_LOGIN_SECONDS, refused)
            return refused
        if isinstance(error, Forbidden):
            return MisconfiguredError(
                f"{name} forbids what skillbus has to do ({error.code}): give "
                f"{self._settings.neo4j_user} the rights to write and to change the schema"
            )
        if isinstance(error, (ConfigurationError, UnsupportedServerProduct)):
            return MisconfiguredError(f"servers.neo4j: {self._address} cannot be used: {error}")
        if isinstance(error, Neo4jError):
            return self._server_error(error, name)
        return TransientError(f"{name} cannot be reached: {error}", public_message=_PUBLIC_MESSAGE)

    def _server_error(self, error: Neo4jError, name: str) -> SkillbusError:
        code = error.code or ""
        if code == _DATABASE_MISSING:
            return MisconfiguredError(
                f"{name} has no database {self._settings.neo4j_database}: check "
                "servers.neo4j_database"
            )
        if isinstance(error, (PassingError, DatabaseError)) or code.startswith(_PASSING_CODES):
            return TransientError(
                f"{name} could not do it now ({code}): {error.message}",
                public_message=_PUBLIC_MESSAGE,
            )
        return PermanentError(
            f"{name} refused a statement ({code}): {error.message}",
            public_message="the catalog refused the request",
        )


def _retry_seconds(error: Exception, call: WatchedCall, limit: float) -> float:
    """Return the seconds after the first attempt in which this error is retried."""
    if call.expired:
        return 0.0
    if isinstance(error, (ServiceUnavailable, SessionExpired, IncompleteCommit)):
        return min(_RECONNECT_SECONDS, limit)
    if isinstance(error, ClientError):
        return limit if error.code == _CONCURRENTLY_DELETED else 0.0
    retryable = isinstance(error, (Neo4jError, DriverError)) and error.is_retryable()
    return limit if retryable else 0.0
