"""Submissions by queue: events and queries that arrive on a message broker, and their replies.

`consumer` receives messages and `recorder` records them in the journal; `outbox_relay` publishes
the replies. Each broker has two modules: `rabbitmq_consumer` and `rabbitmq_reply_publisher`,
`redis_consumer` and `redis_reply_publisher`.
"""
