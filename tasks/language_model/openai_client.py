"""Client of an OpenAI-compatible endpoint: chat completions over the `openai` SDK."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import openai
from pydantic import BaseModel, ConfigDict, SecretStr
from typing_extensions import override

from config.errors import MisconfiguredError
from config.language_model_settings import LanguageModelSettings
from config.secrets import read_secret
from config.tracing import span
from skills.token_count import count_tokens
from tasks.language_model.dialogue import Dialogue, Exchange
from tasks.language_model.endpoint.chat_completion import (
    NotACompletionError,
    Reply,
    error_message,
    read_reply,
)
from tasks.language_model.endpoint.event_loop import EventLoopThread
from tasks.language_model.endpoint.refusals import (
    KEY_FILE,
    RateLimitError,
    quote_message,
    translate_status,
)
from tasks.language_model.endpoint.state import EndpointState, state_of
from tasks.language_model.endpoint.transport import (
    BodyTooLargeError,
    CompressedBodyError,
    make_http_client,
)
from tasks.language_model.protocol import (
    AnswerT,
    LanguageModel,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
    TokenUsage,
)
from tasks.language_model.structured_answers import AnswerForm

_MAX_PAUSES = 5
_CLOSE_SECONDS = 5.0


@dataclass(slots=True)
class _Connection:
    """The SDK's client in one process, and the thread that runs its calls and nothing else."""

    pid: int
    thread: EventLoopThread
    client: openai.AsyncOpenAI
    slots: asyncio.Semaphore

    async def close(self) -> None:
        """Cancel the calls and close the connections."""
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.client.close()


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """Result of one tiny request.

    form: what the endpoint enforces of an answer's form. counts_tokens: whether it counts tokens
    itself. milliseconds: duration of the request, with the first connection.
    """

    form: AnswerForm
    counts_tokens: bool
    calls: int
    milliseconds: float


class _Works(BaseModel):
    """The answer to the request of `probe`."""

    model_config = ConfigDict(extra="forbid")

    works: bool


class OpenAILanguageModel(LanguageModel):
    """A model behind `/chat/completions`.

    Calls run in a thread with an event loop, and are cancelled at their deadline; the endpoint sees
    the connection close. The state of an endpoint (what it enforces, pauses, failures) is kept per
    endpoint and model. The key is read once, here. Raises MisconfiguredError if its file cannot be
    used.
    """

    def __init__(self, settings: LanguageModelSettings) -> None:
        self._settings = settings
        self._host = urlsplit(settings.base_url).hostname or ""
        self._key = _read_key(settings)
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._closed = False

    @property
    @override
    def model(self) -> str:
        return self._settings.model

    @override
    def complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None = None,
    ) -> ModelAnswer[AnswerT]:
        dialogue = Dialogue(self._settings, self._state, self._send)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": self.model,
            "server.address": self._host,
            "skillbus.stage": request.stage,
        }
        with span(f"chat {self.model}", attributes, "client") as opened:
            answer = dialogue.complete(request, answer_type, check)
            opened.set_attributes(
                {
                    "gen_ai.usage.input_tokens": answer.usage.prompt,
                    "gen_ai.usage.output_tokens": answer.usage.completion,
                    "skillbus.model.calls": answer.calls,
                }
            )
        return answer

    def probe(self, seconds: float) -> EndpointReport:
        """Ask for a tiny answer and report what the endpoint can do. Raises as `complete` does."""
        request = ModelRequest(
            stage="select",
            version=1,
            instructions="This is a test of the connection.",
            data='Set "works" to true.',
            max_tokens=1000,
            seconds=seconds,
        )
        began = time.perf_counter()
        given = self.complete(request, _Works)
        return EndpointReport(
            self._state.form,
            not given.usage.estimated,
            given.calls,
            (time.perf_counter() - began) * 1000,
        )

    @override
    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            self._closed = True
        if connection is not None and connection.pid == os.getpid():
            try:
                connection.thread.submit(connection.close()).result(_CLOSE_SECONDS)
            finally:
                connection.thread.stop()

    @property
    def _state(self) -> EndpointState:
        return state_of(self._settings.base_url, self._settings.model)

    def _send(self, fields: Mapping[str, Any], exchange: Exchange) -> Reply:
        """Return the reply to a request, sent in the thread of the event loop."""
        connection = self._connect()
        try:
            future = connection.thread.submit(self._exchange(connection, fields, exchange))
        except RuntimeError:
            raise ModelUnavailableError("the client is closed") from None
        # The event loop enforces the deadline; this limit is for a blocked event loop.
        limit = None if exchange.end is None else max(exchange.end - time.monotonic(), 0) + 1
        try:
            return future.result(limit)
        except CancelledError:
            raise ModelUnavailableError("the client was closed during the call") from None
        except TimeoutError:
            future.cancel()
            raise ModelUnavailableError("the call was not cancelled at its deadline") from None
        except BaseException:
            future.cancel()
            raise

    def _connect(self) -> _Connection:
        """Return the connection of this process, opened on first use and hence after a fork."""
        with self._lock:
            if self._closed:
                raise ModelUnavailableError("the client is closed")
            found = self._connection
            if found is None or found.pid != os.getpid():
                settings = self._settings
                client = openai.AsyncOpenAI(
                    api_key="added by the transport",
                    base_url=settings.base_url,
                    max_retries=0,
                    timeout=None,
                    http_client=make_http_client(
                        settings.base_url, self._key, settings.concurrency
                    ),
                )
                _ = client.chat.completions  # imports its module, outside of any deadline
                slots = asyncio.Semaphore(settings.concurrency)
                found = self._connection = _Connection(
                    os.getpid(), EventLoopThread(), client, slots
                )
            return found

    async def _exchange(
        self, connection: _Connection, fields: Mapping[str, Any], exchange: Exchange
    ) -> Reply:
        """Wait for a slot and for the end of a pause; call the endpoint; obey its rate limits."""
        state, limit, pauses = self._state, self._settings.timeout_seconds, 0
        while pauses < _MAX_PAUSES:
            left = exchange.seconds_left(limit)
            wait = state.seconds_to_wait()
            if left <= 0:
                raise ModelUnavailableError("no time is left for another call")
            if wait >= left:
                break
            await asyncio.sleep(wait)
            state.admit(exchange.seconds_left(limit), starts=False)
            await self._take_slot(connection, exchange)
            try:
                seconds = exchange.seconds_left(limit)
                if state.seconds_to_wait() or seconds <= 0:
                    continue
                state.admit(seconds, starts=True)
                return await self._call(connection.client, fields, seconds, exchange)
            except RateLimitError as rate:
                pauses += 1
                state.pause(rate.retry_after)
            finally:
                connection.slots.release()
        raise ModelUnavailableError(
            f"{self._where} limits the rate", retry_after=state.seconds_to_wait()
        )

    async def _take_slot(self, connection: _Connection, exchange: Exchange) -> None:
        seconds = None if exchange.end is None else exchange.end - time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await connection.slots.acquire()
        except TimeoutError:
            raise ModelUnavailableError(
                f"no call ended in time: {self._settings.concurrency} at a time "
                "(language_model.concurrency)"
            ) from None

    async def _call(
        self,
        client: openai.AsyncOpenAI,
        fields: Mapping[str, Any],
        seconds: float,
        exchange: Exchange,
    ) -> Reply:
        """Send one HTTP request; updates the state of the endpoint and the usage."""
        state, prompt = self._state, " ".join(one["content"] for one in fields["messages"])
        exchange.calls += 1
        try:
            async with asyncio.timeout(seconds):
                response = await client.chat.completions.with_raw_response.create(
                    model=self._settings.model, extra_body=self._settings.extra_body, **fields
                )
            reply = read_reply(response.content, prompt)
        except TimeoutError:
            exchange.usage += TokenUsage(count_tokens(prompt), 0, estimated=True)
            raise self._fail(f"no answer within {seconds:.1f} s", seconds) from None
        except openai.APIStatusError as error:
            said = f"{error.code or ''} {error_message(error.body) or error.message}"
            message = quote_message(said, self._key)
            status, headers = error.status_code, error.response.headers
            raise translate_status(status, headers, message, self._where, state) from None
        except NotACompletionError as error:
            raise self._translate_body(error) from None
        except openai.OpenAIError as error:
            if not isinstance(error.__cause__, BodyTooLargeError):
                raise self._fail(_name_failure(error)) from None
            usage = TokenUsage(count_tokens(prompt), _length_limit(fields), estimated=True)
            reply = Reply("", str(error.__cause__), "", usage)
        state.succeed()
        state.note_name(reply.model or self._settings.model)
        exchange.usage += reply.usage
        return reply

    def _translate_body(self, error: NotACompletionError) -> Exception:
        if error.message:
            return self._fail(quote_message(error.message, self._key))
        if self._state.answered:
            return self._fail("the answer is not JSON")
        return MisconfiguredError(
            f"{self._where} does not answer with JSON; check that language_model.base_url ends "
            "where /chat/completions begins, most often with /v1"
        )

    def _fail(self, reason: str, seconds: float = math.inf) -> ModelUnavailableError:
        """Record a failed call for the circuit breaker, and return its error."""
        self._state.fail(reason, seconds)
        return ModelUnavailableError(f"{self._where}: {reason}")

    @property
    def _where(self) -> str:
        return f"the language model at {self._settings.base_url}"


def _read_key(settings: LanguageModelSettings) -> SecretStr | None:
    """Return the API key. Raises MisconfiguredError if it cannot be sent in a header."""
    key = read_secret(settings.api_key_file, KEY_FILE)
    if key is None:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise MisconfiguredError(
            f"{KEY_FILE}: {settings.api_key_file}: not a key, which is one line of letters, "
            "digits and signs"
        )
    return SecretStr(key)


def _name_failure(error: openai.OpenAIError) -> str:
    """Return the cause of a failure below HTTP; the SDK's own message does not name it."""
    cause = error.__cause__
    if isinstance(cause, CompressedBodyError):
        return str(cause)
    return f"{type(cause or error).__name__}: {cause or error}"


def _length_limit(fields: Mapping[str, Any]) -> int:
    return int(fields.get("max_tokens") or fields.get("max_completion_tokens") or 0)
