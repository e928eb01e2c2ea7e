"""Elasticsearch, Neo4j, Redis and RabbitMQ on one machine without containers.

For tests and trials: `python -m deploy.stack up` leaves them running until `down`, and a `Stack`
gives a program servers that end with it. Production is the official images or managed services.
"""

from deploy.stack.errors import StackError, UnavailableError
from deploy.stack.server import Memory, Server
from deploy.stack.stack import Stack

__all__ = ["Memory", "Server", "Stack", "StackError", "UnavailableError"]
