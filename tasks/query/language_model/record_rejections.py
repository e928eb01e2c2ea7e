"""Records of the rejections by the language model in a query, from which links can be learned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import structlog

from config.errors import TransientError
from skills.bundle.rejection import RejectionReason
from tasks.language_model.skill_pairs.protocol import find_compared_pairs
from tasks.query.context import QueryContext

log = structlog.get_logger()


def record_rejections(
    context: QueryContext,
    rejected: Mapping[str, RejectionReason],
    alternatives: Mapping[str, str],
    conflicts: Sequence[tuple[str, str]],
) -> None:
    """Store the rejections of a query, under the hash of its task.

    rejected: skill_id -> reason. alternatives: skill_id -> the needed skill that does the same.
    conflicts: pairs that must not go together. The answer does not depend on this record, so an
    error of the store is only logged.
    """
    pairs = context.services.skill_pairs
    if pairs is None:
        return
    reasons = dict.fromkeys(alternatives, RejectionReason.REDUNDANT) | dict(rejected)
    compared = [(one, other, RejectionReason.REDUNDANT) for one, other in alternatives.items()]
    compared += [(one, other, RejectionReason.INCOMPATIBLE) for one, other in conflicts]
    key = hashlib.sha256(context.text.encode("utf-8", "replace")).hexdigest()
    try:
        pairs.record(key, find_compared_pairs(reasons, compared))
    except TransientError as error:
        log.warning("rejections of a query are not kept", reason=str(error))
