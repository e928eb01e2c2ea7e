"""Elasticsearch, Neo4j, Redis, RabbitMQ and a language model on one machine without containers.

For tests and trials. `python -m deploy.stack up` starts servers that run until `down`. A `Stack`
starts servers that stop with the calling process. In production, use official images or managed
services.
"""

from deploy.stack.errors import StackError, UnavailableError
from deploy.stack.server import Memory, Server
from deploy.stack.stack import Stack

__all__ = ["Memory", "Server", "Stack", "StackError", "UnavailableError"]
