"""Ask skillbus through RabbitMQ and print the first lines of the reply.

python examples/clients/ask_rabbitmq.py "which e-bikes get a fresh battery first?"

The broker is that of AMQP_URL; it takes nothing of skillbus, only `pip install pika`.
"""

import json
import os
import sys
import uuid

import pika

QUEUE = "skillbus.events"


def main() -> None:
    """Send a query, wait for its reply, and print it."""
    url = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    query_id = uuid.uuid4().hex
    # A queue of this program's own, gone with its connection.
    reply_to = f"skillbus.replies.{query_id}"
    channel.queue_declare(reply_to, exclusive=True)
    event = {
        "specversion": "1.0",
        "id": query_id,
        "source": "examples/ask_rabbitmq.py",
        "type": "skillbus.query.asked.v1",
        "data": {"task": sys.argv[1], "budget": 2000, "top": 3},
    }
    properties = pika.BasicProperties(
        content_type="application/cloudevents+json",
        delivery_mode=2,
        reply_to=reply_to,
        correlation_id="1",
    )
    channel.basic_publish("", QUEUE, json.dumps(event), properties, mandatory=True)
    for _, _, body in channel.consume(reply_to, auto_ack=True, inactivity_timeout=60):
        if body is None:
            sys.exit("no reply within a minute: is `skillbus consume` running?")
        show(json.loads(body))
        break
    connection.close()


def show(reply: dict) -> None:
    """Print what a reply says."""
    print(reply["type"])
    data = reply["data"]
    if reply["type"] != "skillbus.query.answered.v1":
        sys.exit(data["reason"])
    print(f"{data['status']}, {data['tokens']} of {data['budget']} tokens")
    for skill in data["skills"]:
        print(f"- {skill['skill_id']}: {skill['description']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('usage: python ask_rabbitmq.py "TASK"')
    main()
