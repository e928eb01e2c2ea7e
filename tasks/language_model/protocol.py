"""Protocol of a language model, with its requests and answers.

A request is a prompt; its answer is one JSON object, validated by a pydantic model. Every
implementation passes the contract suite in `tests/contract/test_language_model.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from config.errors import PermanentError, TransientError
from config.language_model_settings import ModelStage

MAX_ANSWERS = 3
"""Maximum answers per request: the first, and two more after invalid answers."""

AnswerT = TypeVar("AnswerT", bound=BaseModel)
AnswerT_co = TypeVar("AnswerT_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of prompts and answers, over all tries, as the endpoint counts them.

    estimated: whether the endpoint did not count at least one try, so that `skills.token_count`
    did.
    """

    prompt: int = 0
    completion: int = 0
    estimated: bool = False

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.estimated or other.estimated,
        )

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion


class InvalidAnswerError(PermanentError):
    """The model's answer is still invalid after all retries.

    usage, calls: cost of the tries; a `LanguageModel` sets them.
    """

    usage = TokenUsage()
    calls = 0


class ModelUnavailableError(TransientError):
    """The endpoint does not answer, is overloaded or limits the rate.

    retry_after: seconds after which the endpoint may be called again; None if it names none. usage,
    calls: cost of all tries of the request; a `LanguageModel` sets them.
    """

    usage = TokenUsage()
    calls = 0

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message, public_message="the language model did not answer")
        self.retry_after = retry_after


class TokenBudgetError(TransientError):
    """The token budget of the day is used up, or running calls may need the rest.

    retry_after: seconds until the next day (UTC), or until these calls have ended.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, public_message="today's tokens for the language model are spent")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A prompt.

    version: version of the prompt, raised with every change of `instructions` or of the
    construction of `data`. instructions: the system message, the same for every request of a stage
    and version. data: the user message; untrusted texts in it are framed by `frame`. max_tokens:
    maximum tokens of the answer. seconds: time limit over all tries; None takes the limit of the
    settings for each try.
    """

    stage: ModelStage
    version: int
    instructions: str
    data: str
    max_tokens: int
    seconds: float | None = None

    def key(self, model: str, answer_type: type[BaseModel]) -> str:
        """Return the hash of everything that the answer depends on, under which it is stored."""
        parts: list[Any] = [
            self.stage,
            self.version,
            model,
            self.instructions,
            self.data,
            answer_type.model_json_schema(),
        ]
        text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelAnswer(Generic[AnswerT_co]):
    """A validated answer. usage: its cost; nothing if it was stored. calls: number of calls to the
    endpoint."""

    answer: AnswerT_co
    usage: TokenUsage = TokenUsage()
    calls: int = 0


class LanguageModel(Protocol):
    """Answers prompts with validated objects. Threads may share it."""

    @property
    def model(self) -> str:
        """Name of the model: part of the key of every stored answer."""
        ...

    def complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None = None,
    ) -> ModelAnswer[AnswerT]:
        """Return the model's answer, an object of `answer_type`.

        check: raises InvalidAnswerError for an answer that fits the schema but not the request,
        such as one with an id that was not given. After an invalid answer the model is asked again,
        up to MAX_ANSWERS times in all. Raises InvalidAnswerError after that, ModelUnavailableError,
        TokenBudgetError, and MisconfiguredError for a wrong key, address or model.
        """
        ...

    def close(self) -> None:
        """Cancel running calls and release connections and threads."""
        ...
