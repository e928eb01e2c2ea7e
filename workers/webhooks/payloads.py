"""Payloads of deliveries: the few fields that are needed, parsed from each host's JSON.

GitHub, Gitea and Forgejo use the same event names and nearly the same JSON of a push; GitLab
differs. The content only selects sources: what is ingested is fetched from the repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from workers.webhooks.delivery import Delivery, DeliveryError
from workers.webhooks.repository_urls import normalise_url

PING = "ping"

_EVENT_HEADERS = {
    "github": ("x-github-event",),
    "gitlab": ("x-gitlab-event",),
    "gitea": ("x-forgejo-event", "x-gitea-event"),
}
_URL_FIELDS = (
    "clone_url",
    "ssh_url",
    "html_url",
    "git_url",
    "git_http_url",
    "git_ssh_url",
    "http_url",
    "web_url",
)
_BRANCH = "refs/heads/"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FORM_FIELDS = 10
_MAX_TIMESTAMP = 10**12


@dataclass(frozen=True, slots=True)
class Push:
    """A push to one ref.

    branch: "" for a tag or another ref. before, after: commits; after is "" if the ref was deleted.
    pushed_at: seconds since the epoch by the host's clock, None if the payload does not contain it.
    """

    ref: str
    branch: str
    before: str
    after: str
    pushed_at: float | None = None


@dataclass(frozen=True, slots=True)
class WebhookPayload:
    """A parsed payload.

    event: the host's name for it. repositories: all addresses of the repository, in the form of
    `normalise_url`. push: None for other events.
    """

    event: str
    repositories: frozenset[str]
    default_branch: str = ""
    push: Push | None = None


def parse_payload(delivery: Delivery) -> WebhookPayload:
    """Parse a delivery.

    Raises DeliveryError: 415 for a content type that no host sends, 400 without an event name, 422
    for malformed content or a push that lacks a field.
    """
    event = _parse_event_name(delivery)
    content = _parse_body(delivery)
    repository = content.get("repository")
    project = content.get("project")
    if event == "push" and not isinstance(repository, dict) and not isinstance(project, dict):
        raise DeliveryError(422, "the push names no repository")
    repositories = [one for one in (repository, project) if isinstance(one, dict)]
    addresses = (_get_text(one, name) for one in repositories for name in _URL_FIELDS)
    default = (_get_text(one, "default_branch") for one in repositories)
    return WebhookPayload(
        event=event,
        repositories=frozenset(found for found in map(normalise_url, addresses) if found),
        default_branch=next((name for name in default if name), ""),
        push=_parse_push(content, repositories) if event == "push" else None,
    )


def _parse_event_name(delivery: Delivery) -> str:
    """Return `push`, `ping`, or the host's name of another event."""
    names = _EVENT_HEADERS[delivery.host]
    event = next((delivery.headers[name] for name in names if name in delivery.headers), "")
    if not event:
        raise DeliveryError(400, f"no header {' or '.join(names)}; {delivery.host} sends one")
    if not (event.isascii() and event.isprintable() and len(event) <= 100):
        raise DeliveryError(400, f"header {names[-1]}: not an event name")
    return "push" if delivery.host == "gitlab" and event == "Push Hook" else event


def _parse_body(delivery: Delivery) -> Mapping[str, Any]:
    kind = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        text: str | bytes = delivery.body
    elif kind == "application/x-www-form-urlencoded" and delivery.host != "gitlab":
        text = _get_form_payload(delivery.body)
    else:
        raise DeliveryError(415, "content type: choose application/json for the webhook")
    try:
        content = json.loads(text)
    # Python's JSON parser recurses with the nesting.
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DeliveryError(422, f"the content is not JSON: {reason}") from None
    if not isinstance(content, dict):
        raise DeliveryError(422, "the content is not a JSON object")
    return content


def _get_form_payload(body: bytes) -> str:
    """Return the JSON in the field `payload` of a form."""
    try:
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=_FORM_FIELDS)
    except ValueError as error:
        raise DeliveryError(422, f"the content is not a form: {error}") from None
    if len(fields.get("payload", ())) != 1:
        raise DeliveryError(422, "the form has no field payload, or several")
    return fields["payload"][0]


def _parse_push(content: Mapping[str, Any], repositories: list[dict[str, Any]]) -> Push:
    ref, before, after = (_get_text(content, name) for name in ("ref", "before", "after"))
    if not (ref and _COMMIT.fullmatch(after)):
        raise DeliveryError(422, "the push has no ref or no new commit")
    gone = content.get("deleted") is True or not after.strip("0")
    return Push(
        ref=ref,
        branch=ref.removeprefix(_BRANCH) if ref.startswith(_BRANCH) else "",
        before=before if _COMMIT.fullmatch(before) and before.strip("0") else "",
        after="" if gone else after,
        pushed_at=next(
            (when for when in map(_parse_pushed_at, repositories) if when is not None), None
        ),
    )


def _parse_pushed_at(repository: Mapping[str, Any]) -> float | None:
    """Return GitHub's time of a push: a number in pushes; other events have text there."""
    when = repository.get("pushed_at")
    return float(when) if type(when) is int and 0 < when < _MAX_TIMESTAMP else None


def _get_text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""
