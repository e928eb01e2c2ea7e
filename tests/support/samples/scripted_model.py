"""A language model in the process that answers by a script, for tests of single stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from tasks.language_model.protocol import (
    AnswerT,
    LanguageModel,
    ModelAnswer,
    ModelRequest,
    TokenUsage,
)


class ScriptedModel(LanguageModel):
    """Answers with what the script returns, validated and checked as a client does.

    script: gets the request; what it raises is raised. requests: those it got.
    """

    def __init__(self, script: Callable[[ModelRequest], Any]) -> None:
        self._script = script
        self.requests: list[ModelRequest] = []

    @property
    @override
    def model(self) -> str:
        return "scripted"

    @override
    def complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None = None,
    ) -> ModelAnswer[AnswerT]:
        self.requests.append(request)
        answer = answer_type.model_validate(self._script(request))
        if check is not None:
            check(answer)
        return ModelAnswer(answer, TokenUsage(100, 10), calls=1)

    @override
    def close(self) -> None:
        return
