"""Deliveries as hosts send them, signed here by the algorithms that they document."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from tests.support.program.secrecy import made_up
from workers.webhooks.delivery import Delivery

OLD = "1f" * 20
NEW = "2e" * 20
NONE = "0" * 40
SECRET = made_up("of all hosts")
SIGNING = f"whsec_{base64.b64encode(made_up('key-of-32-bytes').encode()).decode()}"

Content = dict[str, Any]
Sender = Callable[..., Delivery]


def hmac_hex(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def github_push(address: str = "https://git.example/crafts/skills.git", **values: Any) -> Content:
    """A push as GitHub tells it, cut to what is near the fields that are read."""
    path = address.split("/", 3)[3].removesuffix(".git")
    repository = {
        "id": 7,
        "full_name": path,
        "html_url": address.removesuffix(".git"),
        "clone_url": address,
        "ssh_url": f"git@git.example:{path}.git",
        "default_branch": "main",
        "pushed_at": int(time.time()),
    }
    head = {"id": NEW, "added": ["kiln/SKILL.md"], "removed": [], "modified": []}
    push = {
        "ref": "refs/heads/main",
        "before": OLD,
        "after": NEW,
        "created": False,
        "deleted": False,
        "forced": False,
        "commits": [head],
        "repository": repository | values.pop("repository", {}),
    }
    return push | values


def gitlab_push(address: str = "https://git.example/crafts/skills.git", **values: Any) -> Content:
    """A push as GitLab tells it."""
    path = address.split("/", 3)[3].removesuffix(".git")
    return {
        "object_kind": "push",
        "ref": "refs/heads/main",
        "before": OLD,
        "after": NEW,
        "checkout_sha": NEW,
        "project": {
            "git_http_url": address,
            "git_ssh_url": f"git@git.example:{path}.git",
            "web_url": address.removesuffix(".git"),
            "default_branch": "main",
        },
        "total_commits_count": 1,
    } | values


def gitea_push(address: str = "https://git.example/crafts/skills.git", **values: Any) -> Content:
    """A push as Gitea tells it: much as GitHub does, without the time."""
    push = github_push(address, **values)
    push["repository"].pop("pushed_at", None)
    return push


def encoded(content: Content, form: bool = False) -> tuple[str, bytes]:
    """Content type and body."""
    text = json.dumps(content)
    if form:
        body = urlencode({"payload": text}).encode()
        return "application/x-www-form-urlencoded", body
    return "application/json", text.encode()


def github(
    content: Content, secret: str, event: str = "push", form: bool = False, **headers: str
) -> Delivery:
    kind, body = encoded(content, form)
    return Delivery(
        "github",
        {
            "content-type": kind,
            "x-github-event": event,
            "x-github-delivery": str(uuid.uuid4()),
            "x-hub-signature-256": f"sha256={hmac_hex(secret, body)}",
        }
        | _named(headers),
        body,
    )


def gitea(
    content: Content,
    secret: str,
    event: str = "push",
    form: bool = False,
    brand: str = "gitea",
    **headers: str,
) -> Delivery:
    kind, body = encoded(content, form)
    return Delivery(
        "gitea",
        {
            "content-type": kind,
            f"x-{brand}-event": event,
            f"x-{brand}-delivery": str(uuid.uuid4()),
            f"x-{brand}-signature": hmac_hex(secret, body),
        }
        | _named(headers),
        body,
    )


def gitlab(
    content: Content, secret: str, event: str = "Push Hook", form: bool = False, **headers: str
) -> Delivery:
    """By token, or by signature when the secret is a signing token."""
    assert not form, "GitLab sends JSON"
    kind, body = encoded(content)
    key = headers.pop("idempotency_key", str(uuid.uuid4()))
    sent = {"content-type": kind, "x-gitlab-event": event, "idempotency-key": key}
    if secret.startswith("whsec_"):
        when = headers.pop("webhook_timestamp", str(int(time.time())))
        signed = f"{key}.{when}.".encode() + body
        digest = hmac.new(base64.b64decode(secret[6:]), signed, hashlib.sha256).digest()
        signature = "v1," + base64.b64encode(digest).decode()
        sent |= {"webhook-id": key, "webhook-timestamp": when, "webhook-signature": signature}
    else:
        sent["x-gitlab-token"] = secret
    return Delivery("gitlab", sent | _named(headers), body)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


SENDERS: dict[str, tuple[Sender, Callable[..., Content], str]] = {
    "github": (github, github_push, SECRET),
    "gitea": (gitea, gitea_push, SECRET),
    "gitlab": (gitlab, gitlab_push, SECRET),
    "gitlab signed": (gitlab, gitlab_push, SIGNING),
}
"""How each host signs and what it sends, with its secret."""
