"""With which groups queries of a queue read: those of a setting, whatever a message says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from config.inbound_settings import AccessSettings
from config.settings import Settings
from skills.access import ANYONE, UNRESTRICTED, Reader
from skills.events import Event, QueryAsked, new_event
from workers.queue.protocol import Message
from workers.queue.recorder import MessageRecorder


@pytest.mark.parametrize(
    ("groups", "reader"),
    [(("*",), UNRESTRICTED), ((), ANYONE), (("hr", "finance"), Reader.of(["finance", "hr"]))],
)
@pytest.mark.parametrize("claimed", ["*", "", "admin"])
def test_a_message_reads_with_the_groups_of_the_setting(
    groups: tuple[str, ...], reader: Reader, claimed: str
) -> None:
    recorded: list[Event] = []

    def accept(event: Event, seconds: float) -> bool:
        recorded.append(event)
        return seconds > 0

    access = AccessSettings(message_groups=groups)
    backend: Any = SimpleNamespace(settings=Settings(access=access), accept_if_new=accept)
    event = new_event(QueryAsked(task="bake bread"), "ci")
    message = event.model_copy(update={"readergroups": claimed, "owner": "ann"})
    recorder = MessageRecorder(cast(Any, backend))
    assert recorder.record(Message(message.model_dump_json().encode())) is None
    assert [(one.reader, one.owner) for one in recorded] == [(reader, "")]
