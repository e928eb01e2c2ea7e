"""Message brokers for tasks and results: memory, Redis or RabbitMQ."""
