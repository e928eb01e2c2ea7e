"""From a message to the journal: read, checked, recorded, or refused with a reason."""

from __future__ import annotations

import time

import structlog

from config.errors import UsageError
from skills.events import (
    Event,
    Sender,
    SourceChanged,
    check_reply_to,
    parse_request,
    refusal_of,
    sender_of,
    with_origin,
)
from tasks.journal.protocol import LARGEST_BODY, DeadLetter, job_id, new_letter_id
from workers.backend.channel import Channel
from workers.library.source_roots import check_root
from workers.queue.protocol import Message

log = structlog.get_logger()

ORIGIN = "skillbus/consume"
AFTER_SEQ = "afterseq"
"""Extension attribute in the journal's copy of an event: the catalog's counter when it came."""

_MINUTE = 60
_LONGEST_CORRELATION = 200


class Refusal:
    """Why a message was not accepted, and the event that tells its sender.

    reply_to: where that goes, "" for a sender that cannot be told.
    """

    __slots__ = ("event", "reply_to")

    def __init__(self, reply_to: str, event: Event) -> None:
        self.reply_to = reply_to
        self.event = event


class Intake:
    """Records messages in a deployment's journal, each once however often it comes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._settings = channel.settings.submissions

    def take(self, message: Message) -> Refusal | None:
        """Record a message; what cannot be accepted is buried, and its refusal returned.

        When this returns, the message may be confirmed. Raises TransientError when too many wait
        or a store is away: the message is to be kept and taken again.
        """
        try:
            event = self._read(message)
        except UsageError as error:
            return self._refuse(message, str(error))
        # Asked for at leisure: the answer is wanted for as long as answers are kept.
        seconds = self._channel.settings.workers.answer_minutes * _MINUTE
        is_new = self._channel.accept_once(event, seconds)
        told = {"job_id": job_id(event), "type": event.type, "id": event.id}
        log.info("message recorded" if is_new else "message recorded before", **told)
        return None

    def _read(self, message: Message) -> Event:
        """The event of a message, as the journal keeps it; raises UsageError when it is none."""
        size, most = len(message.body), self._settings.message_bytes
        if size > most:
            raise UsageError(f"{size} bytes; at most {most} (submissions.message_bytes)")
        if message.problem:
            raise UsageError(message.problem)
        event = parse_request(message.body)
        for name, beside, own in (
            ("reply_to", message.reply_to, event.replyto),
            ("correlation_id", message.correlation_id, event.correlationid),
        ):
            if beside and own and beside != own:
                raise UsageError(f"{name} beside the event and in it are not the same")
        event = with_origin(event, "", message.reply_to, message.correlation_id)
        content = event.content()
        after = 0
        if isinstance(content, SourceChanged):
            if content.root:
                roots, setting = self._settings.roots, "submissions.roots"
                graph = self._channel.graph
                check_root(graph, content.source_id, content.root, roots, setting)
            if event.replyto:
                after = self._channel.graph.take_seqs(0).stop - 1
        return event.model_copy(update={AFTER_SEQ: after})

    def _refuse(self, message: Message, reason: str) -> Refusal:
        now = time.time()
        text = message.body[: 4 * LARGEST_BODY].decode("utf-8", "replace")[:LARGEST_BODY]
        sender = _sender(message, self._settings.message_bytes)
        letter = DeadLetter(new_letter_id(now), "", (), reason, 0, "", text, now)
        self._channel.journal.bury(letter)
        log.warning("message buried", letter_id=letter.id, reason=reason)
        return Refusal(sender.reply_to, refusal_of(sender, reason, letter.id, ORIGIN))


def _sender(message: Message, largest: int) -> Sender:
    """Who sent a message that was refused, as far as it can be told."""
    said = sender_of(message.body) if len(message.body) <= largest else Sender()
    reply_to, correlation = said.reply_to, said.correlation_id
    if message.reply_to:
        try:
            reply_to = check_reply_to(message.reply_to)
        except UsageError:
            reply_to = ""
    beside = message.correlation_id
    if beside.isascii() and beside.isprintable() and 0 < len(beside) <= _LONGEST_CORRELATION:
        correlation = beside
    return Sender(said.message_id, reply_to, correlation)
