"""The second opinion about a skill: what a language model found that the scanner's rules did not.

It may raise the safety level and never lowers it. It counts as long as the model that gave it is
the one of the settings.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from skills.record import SafetyFinding, SkillRecord

JUDGED_LEVELS = {"review": 1, "harmful": 2}
"""Safety level by verdict: 1 is sent with a caution by default, 2 is withheld. Level 3 is left to
the rules, which cannot be persuaded."""

MAX_REASON_CHARACTERS = 160


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

    def to_json(self) -> str:
        """The JSON that `judgement_from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)


def judgement_from_json(text: str) -> Judgement | None:
    """A stored judgement; None for an empty text."""
    return Judgement(**json.loads(text)) if text else None


def with_judgement(record: SkillRecord, judgement: Judgement | None, model: str) -> SkillRecord:
    """The record with the level and the finding of a judgement, if it is of this model.

    model: that may judge; empty for none. Adding it twice adds it once.
    """
    if judgement is None or not model or judgement.model != model:
        return record
    finding = judgement.to_finding()
    if finding in record.safety:
        return record
    return replace(
        record,
        safety=(*record.safety, finding),
        safety_level=max(record.safety_level, judgement.level),
    )
