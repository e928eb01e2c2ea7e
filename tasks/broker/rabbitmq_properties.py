"""Decoding of properties and routing keys of AMQP messages that survives what amqp cannot decode.

Any program can put such values into a message, such as a time in milliseconds or text that is not
UTF-8. The error of amqp would end the consumer, and each one that gets the message after it.
"""

from __future__ import annotations

import struct
from typing import Any

from amqp import abstract_channel, serialization
from amqp.exceptions import FrameSyntaxError
from amqp.spec import Basic

from tasks.message import UNREADABLE_HEADER

_DECODE_ERRORS = (
    ArithmeticError,
    FrameSyntaxError,
    LookupError,
    OSError,
    RecursionError,
    ValueError,
    struct.error,
)


def keep_unreadable_messages() -> None:
    """Have amqp deliver a message whose properties it cannot decode with the header
    `UNREADABLE_HEADER` as its only property, and one whose routing key is not UTF-8; repeated calls
    change nothing."""
    serialization.PROPERTY_CLASSES[Basic.CLASS_ID] = _decode_properties
    abstract_channel.loads = _decode_arguments


def _decode_properties(buffer: bytes, offset: int) -> tuple[dict[str, Any], int]:
    try:
        decoded: tuple[dict[str, Any], int] = serialization.decode_properties_basic(buffer, offset)
    except _DECODE_ERRORS as error:
        reason = f"properties that cannot be decoded: {error}"
        return {"application_headers": {UNREADABLE_HEADER: reason[:200]}}, offset
    return decoded


def _decode_arguments(types: str, buffer: bytes, offset: int) -> tuple[list[Any], int]:
    """Return the arguments of a method; a delivery ends with the routing key, a short string."""
    try:
        arguments, end = serialization.loads(types, buffer, offset)
    except UnicodeDecodeError:
        if not types.endswith("s"):
            raise
        arguments, offset = serialization.loads(types[:-1], buffer, offset)
        start, end = offset + 1, offset + 1 + buffer[offset]
        arguments.append(bytes(buffer[start:end]).decode("utf-8", "replace"))
    return arguments, end
