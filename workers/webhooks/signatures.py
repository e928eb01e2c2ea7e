"""Signature checks of webhook deliveries, by the documentation of each host.

- GitHub: `X-Hub-Signature-256`, "sha256=" and the HMAC-SHA-256 of the raw body in hexadecimal.
- Gitea and Forgejo: `X-Gitea-Signature` or `X-Forgejo-Signature`, the same without a prefix.
- GitLab: the secret itself in `X-Gitlab-Token`; or a signing token, by the scheme of Standard
  Webhooks: `webhook-signature` holds "v1," and the HMAC-SHA-256 of "id.timestamp.body" in base64,
  where id and timestamp are `webhook-id` and `webhook-timestamp`.

All comparisons take constant time, and every secret is tried.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workers.webhooks.delivery import Delivery, DeliveryError
from workers.webhooks.secrets import Secret

_TIMESTAMP = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Verification:
    """Facts proved by a signature.

    sources: ids that the secret is for; None for all. replay_key: the same for every repetition of
    a delivery, regardless of changes made without the secret. sent_at: seconds since the epoch, if
    the host signs it.
    """

    sources: frozenset[str] | None
    replay_key: str
    sent_at: float | None = None


def verify_signature(delivery: Delivery, secrets: Sequence[Secret]) -> Verification:
    """Verify the signature of a delivery.

    Raises DeliveryError: 401 unless it matches one of the secrets, 400 for a delivery of GitLab
    with a plain token and without an id.
    """
    if delivery.host == "gitlab":
        return _verify_gitlab(delivery, secrets)
    signature = _get_hex_signature(delivery)
    matching = [
        secret
        for secret in secrets
        if _compare_digest(_hmac(secret.text.encode(), delivery.body).hex(), signature)
    ]
    # GitHub, Gitea and Forgejo do not sign the delivery id: only the body identifies a repetition.
    return _build_verification(
        delivery, matching, f"body:{hashlib.sha256(delivery.body).hexdigest()}"
    )


def _get_hex_signature(delivery: Delivery) -> str:
    headers = delivery.headers
    if delivery.host == "github":
        prefix, _, signature = headers.get("x-hub-signature-256", "").partition("=")
        return signature if prefix == "sha256" else ""
    return headers.get("x-forgejo-signature", headers.get("x-gitea-signature", ""))


def _verify_gitlab(delivery: Delivery, secrets: Sequence[Secret]) -> Verification:
    headers = delivery.headers
    signing = [(one, key) for one in secrets if (key := one.get_signing_key()) is not None]
    if "webhook-signature" in headers and signing:
        return _verify_standard_webhook(delivery, signing)
    token = _digest(_encode_header(headers.get("x-gitlab-token", "")))
    plain = [secret for secret in secrets if secret.get_signing_key() is None]
    matching = [secret for secret in plain if _compare_digest(_digest(secret.text.encode()), token)]
    # Before GitLab had idempotency keys, webhooks that triggered each other shared an id.
    body_part = "" if "idempotency-key" in headers else f" body:{_digest(delivery.body)}"
    verification = _build_verification(delivery, matching, f"id:{delivery.id}{body_part}")
    if not delivery.id:
        raise DeliveryError(400, "no Idempotency-Key or X-Gitlab-Event-UUID: GitLab sends one")
    return verification


def _verify_standard_webhook(
    delivery: Delivery, signing: Sequence[tuple[Secret, bytes]]
) -> Verification:
    headers = delivery.headers
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signed = b".".join((_encode_header(message_id), _encode_header(timestamp), delivery.body))
    signatures = [
        signature
        for version, _, signature in (
            one.partition(",") for one in headers["webhook-signature"].split(" ")
        )
        if version == "v1"
    ]
    matching = []
    for secret, key in signing:
        expected = base64.b64encode(_hmac(key, signed)).decode()
        same = [_compare_digest(expected, signature) for signature in signatures]
        if any(same):
            matching.append(secret)
    verification = _build_verification(delivery, matching, f"id:{message_id}")
    if not (message_id and _TIMESTAMP.fullmatch(timestamp)):
        raise DeliveryError(401, "webhook-id or webhook-timestamp is missing or malformed")
    return Verification(verification.sources, verification.replay_key, float(timestamp))


def _build_verification(
    delivery: Delivery, matching: Sequence[Secret], identity: str
) -> Verification:
    if not matching:
        raise DeliveryError(
            401,
            f"not signed with a known secret of {delivery.host}; "
            "compare the webhook's secret with the files of [webhooks]",
        )
    everywhere = any(not secret.source_id for secret in matching)
    sources = None if everywhere else frozenset(secret.source_id for secret in matching)
    return Verification(sources, identity)


def _hmac(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()


def _digest(text: bytes) -> str:
    """Hash a text, so that texts of any length are compared in the same time."""
    return hashlib.sha256(text).hexdigest()


def _compare_digest(expected: str, found: str) -> bool:
    return hmac.compare_digest(expected.encode(), _encode_header(found))


def _encode_header(text: str) -> bytes:
    """Return the bytes of a header; HTTP servers decode each byte as one character."""
    return text.encode("latin-1", errors="backslashreplace")
