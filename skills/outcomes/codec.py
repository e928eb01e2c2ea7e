"""Serialises answered queries (JSON under zlib) and outcomes (JSON)."""

from __future__ import annotations

import json
import zlib
from typing import Any

from skills.outcomes.model import (
    AnsweredQuery,
    AnsweredSkill,
    LostSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)

OWNER_FIELD, REPORTED_FIELD = 3, 4
"""Indexes of the owner and the time of the report in the JSON array of `dump_outcome`."""

_VERSION = 1
_COMPRESSION_LEVEL = 6

# A day may have a million outcomes. This parser is several times as fast as json.loads of bytes,
# and these tables are several times as fast as a lookup by an enumeration.
_parse = json.JSONDecoder().raw_decode
_KINDS = {kind.value: kind for kind in OutcomeKind}
_REPORTERS = {reporter.value: reporter for reporter in Reporter}


def dump_answer(answer: AnsweredQuery) -> bytes:
    """Serialise an answered query; `load_answer` restores an equal one."""
    values = [
        _VERSION,
        answer.query_id,
        answer.owner,
        answer.session,
        answer.task,
        answer.answered,
        int(answer.hit),
        answer.probability,
        [
            [one.skill_id, one.seq, one.place, int(one.sent), one.tokens, one.lines]
            for one in answer.skills
        ],
        [[one.skill_id, one.to] for one in answer.lost],
        int(answer.resend),
        *([] if answer.is_use else [0]),
    ]
    return zlib.compress(_dump(values), _COMPRESSION_LEVEL)


def load_answer(data: bytes) -> AnsweredQuery:
    """Deserialise an answered query from the bytes of `dump_answer`."""
    values, _ = _parse(zlib.decompress(data).decode())
    _, query_id, owner, session, task, answered, hit, probability, skills, lost, resend, *use = (
        values
    )
    return AnsweredQuery(
        query_id,
        owner,
        session,
        task,
        answered,
        bool(hit),
        probability,
        tuple(
            AnsweredSkill(
                skill_id, seq, place, sent == 1, tokens, tuple([(a, b) for a, b in lines])
            )
            for skill_id, seq, place, sent, tokens, lines in skills
        ),
        tuple([LostSkill(skill_id, to) for skill_id, to in lost]),
        bool(resend),
        use != [0],
    )


def dump_outcome(outcome: Outcome) -> bytes:
    """Serialise an outcome without its key and query id; `load_outcome` restores it."""
    return _dump(
        [
            outcome.skill_id,
            outcome.kind.value,
            outcome.by.value,
            outcome.owner,
            outcome.reported,
            outcome.reason,
            outcome.other,
            outcome.place,
            outcome.task_result,
        ]
    )


def load_outcome(key: str, query_id: str, data: bytes) -> Outcome:
    """Deserialise an outcome from the bytes of `dump_outcome`, given its key and query id."""
    (skill_id, kind, by, *rest), _ = _parse(data.decode())
    return Outcome(key, query_id, skill_id, _KINDS[kind], _REPORTERS[by], *rest)


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as a JSON object, in the form of exports."""
    return {
        "key": outcome.key,
        "query_id": outcome.query_id,
        "skill_id": outcome.skill_id,
        "outcome": outcome.kind.value,
        "by": outcome.by.value,
        "owner": outcome.owner,
        "reported": outcome.reported,
        "reason": outcome.reason,
        "other": outcome.other,
        "place": outcome.place,
        "task_result": outcome.task_result,
    }


def _dump(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
