"""Connections to the broker of submissions: the implementation for RabbitMQ or for Redis."""

from __future__ import annotations

from workers.queue.broker import Broker
from workers.queue.protocol import MessageConsumer, ReplyPublisher

# Only the client library of the broker in use is loaded, so imports are inside the functions.


def open_message_consumer(broker: Broker, consumer: str) -> MessageConsumer:
    """Connect as a consumer of this name.

    Raises TransientError while the broker is unreachable, MisconfiguredError if it refuses the
    login.
    """
    if broker.is_redis:
        from workers.queue.redis_consumer import RedisMessageConsumer

        return RedisMessageConsumer(broker, consumer)
    from workers.queue.rabbitmq_consumer import RabbitMessageConsumer

    return RabbitMessageConsumer(broker)


def open_reply_publisher(broker: Broker) -> ReplyPublisher:
    """Connect for publishing replies only; raises as `open_message_consumer`."""
    if broker.is_redis:
        from workers.queue.redis_reply_publisher import RedisReplyPublisher

        return RedisReplyPublisher(broker)
    from workers.queue.rabbitmq_reply_publisher import RabbitReplyPublisher

    return RabbitReplyPublisher(broker)
