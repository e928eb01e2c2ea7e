"""Ask skillbus through Redis and print the first lines of the reply.

python examples/clients/ask_redis.py "which e-bikes get a fresh battery first?" [session]

What was sent in a session before, any id of yours, is not sent again.
The broker is that of REDIS_URL; it takes nothing of skillbus, only `pip install redis`.
"""

import json
import os
import sys
import uuid

import redis

STREAM = "skillbus.events"


def main() -> None:
    """Send a query, wait for its reply, and print it."""
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
    client = redis.Redis.from_url(url, decode_responses=True, protocol=2, socket_timeout=70)
    query_id = uuid.uuid4().hex
    reply_to = f"skillbus.replies.{query_id}"
    data = {"task": sys.argv[1], "budget": 2000, "top": 3}
    if len(sys.argv) > 2:
        data["session"] = sys.argv[2]
    event = {
        "specversion": "1.0",
        "id": query_id,
        "source": "examples/ask_redis.py",
        "type": "skillbus.query.asked.v1",
        "data": data,
    }
    # No MAXLEN: it would drop entries that have not been read.
    fields = {"event": json.dumps(event), "reply_to": reply_to, "correlation_id": "1"}
    client.xadd(STREAM, fields)
    answer = client.xread({reply_to: "0"}, block=60_000)
    if not answer:
        sys.exit("no reply within a minute: is `skillbus consume` running?")
    _, fields = answer[0][1][0]
    client.delete(reply_to)
    show(json.loads(fields["event"]))


def show(reply: dict) -> None:
    """Print what a reply says."""
    print(reply["type"])
    data = reply["data"]
    if reply["type"] != "skillbus.query.answered.v1":
        sys.exit(data["reason"])
    print(f"{data['status']}, {data['tokens']} of {data['budget']} tokens")
    for sent in data["already_sent"]:
        print(f"- {sent['skill_id']}: sent earlier")
    for skill in data["skills"]:
        print(f"- {skill['skill_id']}: {skill['description']}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit('usage: python ask_redis.py "TASK" [SESSION]')
    main()
