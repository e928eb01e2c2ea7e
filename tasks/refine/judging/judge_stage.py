"""The judge stage: a language model judges the safety of a skill and may raise its level.

The rules of the scanner find known forms, but few subtle attacks in plain words. The model reads
the lines of a skill and says what an agent that follows them would do against its user. Its verdict
raises the safety level or asks for review, and never lowers the level of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from config.language_model_settings import ModelStage
from search.protocol import StoredRevision
from skills.judgement import JUDGED_LEVELS, Judgement
from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.refine.judging.judge_prompt import (
    INSTRUCTIONS,
    JUDGE_VERSION,
    JudgeAnswer,
    JudgePrompt,
    build_judge_prompt,
)
from tasks.refine.judging.line_weights import needs_judgement, weigh_lines
from tasks.refine.stage import RefineContext, RefineStage

_MAX_ANSWER_TOKENS = 300
_KEPT_LINES = 5


class JudgeStage(RefineStage):
    """Asks about skills that `needs_judgement` selects.

    A refinement has `asked`; if it is true, also `verdict`, `kind`, `lines` and `reason`, or
    `invalid`, the reason for no verdict.
    """

    name: ModelStage = "judge"
    version = JUDGE_VERSION

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        prompt = _prompt(revision)
        return [] if prompt is None else [make_request(prompt)]

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        prompt = _prompt(revision)
        if prompt is None:
            return {"asked": False}
        try:
            answer = context.model.complete(
                make_request(prompt), JudgeAnswer, lambda answer: check_answer(answer, prompt)
            ).answer
        except InvalidAnswerError as error:
            return {"asked": True, "invalid": str(error)}
        if answer.verdict == "clean":
            return {"asked": True, "verdict": "clean"}
        return {
            "asked": True,
            "verdict": answer.verdict,
            "kind": answer.kind,
            "lines": sorted(set(answer.lines))[:_KEPT_LINES],
            "reason": answer.reason,
        }

    @override
    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        """Write the verdict to the catalog, for any revision that has this content now."""
        model, skill_id = context.model.model, revision.key.skill_id
        judged = {skill_id: (revision.content_hash, to_judgement(model, refinement))}
        context.services.graph.save_judgements(model, judged)


def make_request(prompt: JudgePrompt) -> ModelRequest:
    """Return the request about one skill."""
    return ModelRequest("judge", JUDGE_VERSION, INSTRUCTIONS, prompt.data, _MAX_ANSWER_TOKENS)


def check_answer(answer: JudgeAnswer, prompt: JudgePrompt) -> None:
    """Raise InvalidAnswerError for a verdict without a kind or a line, or about lines that were not
    shown. The other fields of a clean answer are ignored."""
    if answer.verdict == "clean":
        return
    if answer.kind == "none":
        raise InvalidAnswerError(f"the verdict is {answer.verdict}, its kind is none")
    if not answer.lines:
        raise InvalidAnswerError(f"the verdict is {answer.verdict} without a line that shows it")
    unknown = set(answer.lines) - prompt.lines
    if unknown:
        raise InvalidAnswerError(f"lines that were not shown: {sorted(unknown)[:5]}")


def to_judgement(model: str, refinement: dict[str, Any]) -> Judgement | None:
    """Return the judgement of a refinement; None if it raises nothing."""
    level = JUDGED_LEVELS.get(refinement.get("verdict", ""), 0)
    if not level:
        return None
    lines = refinement["lines"]
    return Judgement(model, level, refinement["kind"], min(lines), refinement["reason"])


def _prompt(revision: StoredRevision) -> JudgePrompt | None:
    parsed = revision.parsed
    weights = weigh_lines(parsed.lines, parsed.body_line)
    if not needs_judgement(parsed, weights):
        return None
    return build_judge_prompt(parsed, weights)
