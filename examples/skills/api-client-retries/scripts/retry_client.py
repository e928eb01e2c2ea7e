"""Fetch JSON over HTTPS with capped exponential backoff, full jitter and Retry-After."""

from __future__ import annotations

import http.client
import json
import random
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Policy:
    """How long and how often to try; times in seconds."""

    attempts: int = 5
    base_s: float = 0.5
    cap_s: float = 8.0
    timeout_s: float = 10.0
    deadline_s: float = 45.0
    max_bytes: int = 20_000_000


class GaveUpError(Exception):
    """The service did not give a usable answer within the policy."""


def delay(attempt: int, policy: Policy, retry_after: str | None) -> float:
    """Seconds to wait after the attempt with this number, counted from 0."""
    if retry_after and retry_after.isdigit():
        return float(retry_after)
    return random.SystemRandom().uniform(0.0, min(policy.cap_s, policy.base_s * 2**attempt))


def get(url: str, policy: Policy) -> tuple[int, str | None, bytes]:
    """One GET: status, Retry-After and body; raises OSError or HTTPException when it breaks."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError("only https addresses are fetched")
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=policy.timeout_s)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", target, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read(policy.max_bytes + 1)
        if len(body) > policy.max_bytes:
            raise GaveUpError(f"answer is larger than {policy.max_bytes} bytes")
        return answer.status, answer.getheader("Retry-After"), body
    finally:
        connection.close()


def fetch_json(url: str, policy: Policy | None = None) -> object:
    """The decoded JSON answer; raises GaveUpError when the policy is exhausted."""
    policy = policy or Policy()
    end = time.monotonic() + policy.deadline_s
    problem = "no attempt was made"
    for attempt in range(policy.attempts):
        retry_after = None
        try:
            status, retry_after, body = get(url, policy)
        except (OSError, http.client.HTTPException) as error:
            problem = type(error).__name__
        else:
            if status == http.HTTPStatus.OK:
                return json.loads(body)
            problem = f"status {status}"
            if status not in RETRIED:
                raise GaveUpError(f"{problem} is not retried")
        pause = delay(attempt, policy, retry_after)
        if attempt + 1 == policy.attempts or time.monotonic() + pause > end:
            break
        time.sleep(pause)
    raise GaveUpError(f"{problem} after {attempt + 1} attempts")
