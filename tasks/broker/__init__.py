"""Brokers that carry tasks and results: memory, Redis, RabbitMQ."""
