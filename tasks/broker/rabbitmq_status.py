"""Status of RabbitMQ and its queues, for `doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerAwayError

from config.errors import MisconfiguredError, TransientError

_ACCESS_REFUSED = 403


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Status of a broker.

    version: of the server. missing_queues: not declared by any worker yet. mismatched_queues:
    declared with other arguments than workers use.
    """

    version: str
    missing_queues: tuple[str, ...]
    mismatched_queues: tuple[str, ...]


def inspect_rabbitmq(
    app: Any, queues: Sequence[str], arguments: Mapping[str, object]
) -> BrokerStatus:
    """Return the status of RabbitMQ; declares no new queues.

    app: the Celery application. arguments: the arguments with which workers declare queues. Raises
    TransientError while RabbitMQ is away, MisconfiguredError when it refuses the login.
    """
    try:
        connection = app.connection_for_read()
    except KombuError as error:
        raise MisconfiguredError(f"servers.broker cannot be used: {error}") from error
    with connection:
        try:
            server = connection.connection.server_properties
            missing = [name for name in queues if not _queue_exists(connection, name)]
            declared = [name for name in queues if name not in missing]
            other = [name for name in declared if not _queue_matches(connection, name, arguments)]
        except connection.channel_errors as error:
            if getattr(error, "code", None) == _ACCESS_REFUSED:
                raise MisconfiguredError(
                    "RabbitMQ refuses the login: check the user and the virtual host in "
                    "servers.broker, and the file of servers.broker_password_file"
                ) from None
            raise TransientError(f"RabbitMQ: {error}") from error
        except (BrokerAwayError, KombuError, *connection.connection_errors) as error:
            raise TransientError(f"RabbitMQ does not answer: {error}") from error
    return BrokerStatus(str(server.get("version", "")), tuple(missing), tuple(other))


def _queue_exists(connection: Any, queue: str) -> bool:
    with connection.channel() as channel:
        try:
            channel.queue_declare(queue, passive=True)
        except connection.channel_errors:
            return False
        return True


def _queue_matches(connection: Any, queue: str, arguments: Mapping[str, object]) -> bool:
    """Return whether a queue was declared with these arguments: RabbitMQ refuses others."""
    with connection.channel() as channel:
        try:
            channel.queue_declare(queue, durable=True, auto_delete=False, arguments=dict(arguments))
        except connection.channel_errors:
            return False
        return True
