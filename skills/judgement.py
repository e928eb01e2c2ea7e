"""Judgements of a language model about the safety of skills.

A judgement may raise the safety level and never lowers it. It counts only while the model that gave
it is the model of the settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from skills.record import SafetyFinding, SkillRecord

JUDGED_LEVELS = {"review": 1, "harmful": 2}
"""Safety level by verdict: by default, 1 is sent with a caution and 2 is withheld. Only the rules
give level 3, since a text cannot persuade them."""

JUDGEMENT_RULE = "judgement"
"""Rule id of judgements, which come from a language model instead of the scanner."""

MAX_REASON_CHARACTERS = 160
MAX_MODELS = 4
"""Maximum models whose judgements about one content are kept."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judgement that raises the level. model: its name. reason: its untrusted words."""

    model: str
    level: int
    kind: str
    line: int
    reason: str

    def to_finding(self) -> SafetyFinding:
        """Return the judgement as a finding that names the model and quotes its words as JSON."""
        words = "".join(c if c.isprintable() else " " for c in self.reason)
        flat = " ".join(words.split())
        if len(flat) > MAX_REASON_CHARACTERS:
            flat = flat[: MAX_REASON_CHARACTERS - 1] + "…"
        quoted = json.dumps(flat, ensure_ascii=False)
        return SafetyFinding(self.kind, self.level, self.line, f"judged by {self.model}: {quoted}")


def judgements_from_json(text: str) -> tuple[Judgement, ...]:
    """Return the stored judgements, the newest last."""
    return tuple(Judgement(**one) for one in json.loads(text)) if text else ()


def replace_judgement(text: str, model: str, judgement: Judgement | None) -> str:
    """Return the stored judgements with that of `model` replaced, or removed for None.

    Judgements of a few other models stay, in case the settings name one of these models again.
    """
    others = [one for one in judgements_from_json(text) if one.model != model]
    kept = [*others, *([judgement] if judgement else [])][-MAX_MODELS:]
    return json.dumps([asdict(one) for one in kept], ensure_ascii=False) if kept else ""


def find_judgement(judgements: Iterable[Judgement], model: str) -> Judgement | None:
    """Return the judgement of a model; None if it has none, or if `model` is empty."""
    return next((one for one in judgements if model and one.model == model), None)


def with_judgement(record: SkillRecord, judgement: Judgement | None) -> SkillRecord:
    """Return the record with the level and the finding of a judgement; idempotent."""
    finding = judgement.to_finding() if judgement else None
    if judgement is None or finding is None or finding in record.safety:
        return record
    return replace(
        record,
        safety=(*record.safety, finding),
        safety_level=max(record.safety_level, judgement.level),
    )
