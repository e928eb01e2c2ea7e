"""Properties and routing keys of AMQP messages that amqp cannot decode."""

from __future__ import annotations

import struct

import pytest
from amqp import abstract_channel
from amqp.basic_message import Message
from amqp.serialization import dumps
from amqp.spec import Basic

from tasks.broker.rabbitmq_properties import keep_unreadable_messages
from tasks.message import UNREADABLE_HEADER


def received(properties: bytes) -> Message:
    message = Message()
    message._load_properties(Basic.CLASS_ID, properties, 0)
    return message


def table(value: bytes) -> bytes:
    """Properties of one header."""
    entry = b"\2at" + value
    return struct.pack(">HI", 0x2000, len(entry)) + entry


@pytest.mark.parametrize(
    "properties",
    [
        Message(correlation_id=b"\xff")._serialize_properties(),
        table(b"T" + struct.pack(">Q", 1_795_276_565_197)),  # milliseconds
        table(b"T" + struct.pack(">Q", 1 << 63)),
        table(b"A" + struct.pack(">I", 4) + b"?"),
        table(b"".join(b"F" + struct.pack(">I", 6 * left) + b"\0" for left in range(5000, 0, -1))),
    ],
    ids=["no UTF-8", "a far year", "no time", "an unknown type", "nested too deeply"],
)
def test_a_message_with_properties_that_cannot_be_decoded_is_delivered_with_the_reason(
    properties: bytes,
) -> None:
    keep_unreadable_messages()
    headers = received(properties).headers
    assert "cannot be decoded" in headers[UNREADABLE_HEADER]


def test_other_properties_are_decoded() -> None:
    keep_unreadable_messages()
    sent = Message(reply_to="skillbus.replies.me", application_headers={"task": "skillbus.plan"})
    found = received(sent._serialize_properties())
    assert (found.reply_to, found.headers) == ("skillbus.replies.me", {"task": "skillbus.plan"})


def test_a_message_whose_routing_key_is_not_utf_8_is_delivered() -> None:
    keep_unreadable_messages()
    delivery = "sLbss", dumps("sLbss", ["consumer", 1 << 63, True, "all", b"caf\xe9"]), 0
    arguments, end = abstract_channel.loads(*delivery)
    assert arguments == ["consumer", 1 << 63, True, "all", "caf\ufffd"]
    assert end == len(delivery[1])
    with pytest.raises(UnicodeDecodeError):
        abstract_channel.loads("sB", dumps("sB", [b"\xe9", 1]), 0)
