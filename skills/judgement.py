"""The second opinion about a skill: what a language model found that the scanner's rules did not.

It may raise the safety level and never lowers it. It counts as long as the model that gave it is
the one of the settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from skills.record import SafetyFinding, SkillRecord

JUDGED_LEVELS = {"review": 1, "harmful": 2}
"""Safety level by verdict: 1 is sent with a caution by default, 2 is withheld. Level 3 is left to
the rules, which cannot be persuaded."""

JUDGEMENT_RULE = "judgement"
"""Id of the rule of second opinions, which a language model gives instead of the scanner."""

MAX_REASON_CHARACTERS = 160
MAX_MODELS = 4
"""Models whose judgements are kept of one content."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict that raises the level. model: its name; reason: its words, of untrusted origin."""

    model: str
    level: int
    kind: str
    line: int
    reason: str

    def to_finding(self) -> SafetyFinding:
        """The judgement as a finding, marked as the model's, with its words as one JSON string."""
        words = "".join(c if c.isprintable() else " " for c in self.reason)
        flat = " ".join(words.split())
        if len(flat) > MAX_REASON_CHARACTERS:
            flat = flat[: MAX_REASON_CHARACTERS - 1] + "…"
        quoted = json.dumps(flat, ensure_ascii=False)
        return SafetyFinding(self.kind, self.level, self.line, f"judged by {self.model}: {quoted}")


def judgements_from_json(text: str) -> tuple[Judgement, ...]:
    """Stored judgements, the newest last."""
    return tuple(Judgement(**one) for one in json.loads(text)) if text else ()


def replace_judgement(text: str, model: str, judgement: Judgement | None) -> str:
    """Stored judgements with that of a model replaced, or removed where it raises nothing.

    Those of a few other models stay, for when the settings name one of them again.
    """
    others = [one for one in judgements_from_json(text) if one.model != model]
    kept = [*others, *([judgement] if judgement else [])][-MAX_MODELS:]
    return json.dumps([asdict(one) for one in kept], ensure_ascii=False) if kept else ""


def find_judgement(judgements: Iterable[Judgement], model: str) -> Judgement | None:
    """The judgement of a model; None without one, or for no model."""
    return next((one for one in judgements if model and one.model == model), None)


def with_judgement(record: SkillRecord, judgement: Judgement | None) -> SkillRecord:
    """The record with the level and the finding of a judgement. Adding it twice adds it once."""
    finding = judgement.to_finding() if judgement else None
    if judgement is None or finding is None or finding in record.safety:
        return record
    return replace(
        record,
        safety=(*record.safety, finding),
        safety_level=max(record.safety_level, judgement.level),
    )
