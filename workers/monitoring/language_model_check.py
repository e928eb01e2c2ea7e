"""The check of `doctor` for the language model's endpoint."""

from __future__ import annotations

from config.errors import SkillbusError
from config.settings import Settings
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import InvalidAnswerError, ModelUnavailableError
from tasks.language_model.structured_answers import AnswerForm

_FORMS = {
    AnswerForm.JSON_SCHEMA: "enforces schemas",
    AnswerForm.JSON_OBJECT: "enforces JSON objects, not schemas",
    AnswerForm.PLAIN: "enforces no format: JSON is read from plain text",
}


def check_language_model(settings: Settings) -> str:
    """Request one tiny answer from the endpoint, and return a line about its abilities."""
    chosen = settings.language_model
    model = OpenAILanguageModel(chosen)
    try:
        report = model.probe(chosen.timeout_seconds)
    except InvalidAnswerError as error:
        raise SkillbusError(
            f"{chosen.model} at {chosen.base_url} answers, but not with the JSON object that was "
            f"asked for: {error}; choose a model that follows instructions, or switch its "
            "thinking off in language_model.extra_body"
        ) from None
    except ModelUnavailableError as error:
        raise SkillbusError(
            f"{error}; is the endpoint running, and are language_model.base_url and "
            "language_model.timeout_seconds right?"
        ) from None
    finally:
        model.close()
    counted = "counts tokens" if report.counts_tokens else "counts no tokens: they are estimated"
    return (
        f"{chosen.model} at {chosen.base_url}, {_FORMS[report.form]}, {counted}, "
        f"{report.milliseconds:.0f} ms for a short answer, stages {', '.join(chosen.stages)}"
    )
