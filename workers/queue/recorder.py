"""Recorder of messages: validates a message and records it in the journal, or rejects it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from config.errors import UsageError
from skills.access import Reader
from skills.events import (
    Event,
    MessageSender,
    SourceChanged,
    check_reply_to,
    new_refusal,
    parse_request,
    parse_sender,
    replace_origin,
    replace_root,
)
from tasks.journal.protocol import MAX_BODY_CHARACTERS, DeadLetter, job_id, new_dead_letter_id
from workers.backend.store_backend import StoreBackend
from workers.library.access.allowed_roots import resolve_root
from workers.queue.protocol import Message

log = structlog.get_logger()

ORIGIN = "skillbus/consume"
AFTER_SEQ = "afterseq"
"""Extension attribute of the recorded event: the catalog's last sequence number on arrival."""

_MINUTE = 60
_MAX_CORRELATION_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Rejection:
    """Reply to a message that was not accepted.

    reply_to: its queue, "" if the sender named no valid queue. event: the reply.
    """

    reply_to: str
    event: Event


class MessageRecorder:
    """Records messages in a deployment's journal; a redelivered message is recorded once."""

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend
        self._settings = backend.settings.submissions
        self._reader = Reader.parse(" ".join(backend.settings.access.message_groups))

    def record(self, message: Message) -> Rejection | None:
        """Record a message; an invalid one becomes a dead letter, and its rejection is returned.

        The message may be acknowledged afterwards. Raises TransientError if too many jobs wait or a
        store is unreachable: the message must not be acknowledged then, but recorded later.
        """
        try:
            event = self._parse_message(message)
        except UsageError as error:
            return self._reject(message, str(error))
        # No client waits on a connection, so a query may take as long as answers are kept.
        seconds = self._backend.settings.workers.answer_minutes * _MINUTE
        is_new = self._backend.accept_if_new(event, seconds)
        log_fields = {"job_id": job_id(event), "type": event.type, "id": event.id}
        log.info("message recorded" if is_new else "message recorded before", **log_fields)
        return None

    def _parse_message(self, message: Message) -> Event:
        """Return the event of a message as it is recorded; raises UsageError for an invalid one."""
        size, max_bytes = len(message.body), self._settings.message_bytes
        if size > max_bytes:
            raise UsageError(f"{size} bytes; at most {max_bytes} (submissions.message_bytes)")
        if message.problem:
            raise UsageError(message.problem)
        event = parse_request(message.body)
        for name, from_properties, own in (
            ("reply_to", message.reply_to, event.replyto),
            ("correlation_id", message.correlation_id, event.correlationid),
        ):
            if from_properties and own and from_properties != own:
                raise UsageError(f"{name} differs between the message properties and the event")
        reader = self._reader
        event = replace_origin(event, "", reader, message.reply_to, message.correlation_id)
        content = event.parse_data()
        after = 0
        if isinstance(content, SourceChanged):
            if content.root:
                roots, setting = self._settings.roots, "submissions.roots"
                graph = self._backend.graph
                root = resolve_root(graph, content.source_id, content.root, roots, setting)
                event = replace_root(event, root)
            if event.replyto:
                after = self._backend.graph.last_sequence()
        return event.model_copy(update={AFTER_SEQ: after})

    def _reject(self, message: Message, reason: str) -> Rejection:
        now = time.time()
        text = message.body[: 4 * MAX_BODY_CHARACTERS].decode("utf-8", "replace")[
            :MAX_BODY_CHARACTERS
        ]
        sender = _find_sender(message, self._settings.message_bytes)
        dead_letter = DeadLetter(new_dead_letter_id(now), "", (), reason, 0, "", text, now)
        self._backend.journal.add_dead_letter(dead_letter)
        log.warning("message dead-lettered", letter_id=dead_letter.id, reason=reason)
        return Rejection(sender.reply_to, new_refusal(sender, reason, dead_letter.id, ORIGIN))


def _find_sender(message: Message, max_bytes: int) -> MessageSender:
    """Return the sender of a rejected message, from the parts that can be parsed."""
    parsed_sender = (
        parse_sender(message.body) if len(message.body) <= max_bytes else MessageSender()
    )
    reply_to, correlation = parsed_sender.reply_to, parsed_sender.correlation_id
    if message.reply_to:
        try:
            reply_to = check_reply_to(message.reply_to)
        except UsageError:
            reply_to = ""
    from_properties = message.correlation_id
    if (
        from_properties.isascii()
        and from_properties.isprintable()
        and 0 < len(from_properties) <= _MAX_CORRELATION_LENGTH
    ):
        correlation = from_properties
    return MessageSender(parsed_sender.message_id, reply_to, correlation)
