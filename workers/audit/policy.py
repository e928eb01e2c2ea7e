"""Audit records of changed settings that restrict what is sent and who may change the library."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

from config.settings import Settings
from workers.audit.log import AuditLog, get_local_principal
from workers.library.user_files import write_atomically

_GROUPS = (
    "policy",
    "access",
    "gateway",
    "oidc",
    "webhooks",
    "submissions",
    "git",
    "uploads",
    "audit",
)


def record_policy_changes(settings: Settings) -> None:
    """Record which of the settings of policy have changed since the last start in this home.

    Values are not recorded; a hash of each is kept next to the log. Raises MisconfiguredError or
    PermanentError if the log cannot be written.
    """
    if not settings.audit.enabled:
        return
    audit_log = AuditLog(settings)
    audit_log.check()
    path = audit_log.path.with_name(f"{audit_log.path.name}.settings")
    now = _hash_settings(settings)
    with audit_log.lock():
        # Settings that a newer version has added were at their defaults.
        before = _hash_settings(Settings.model_construct())
        with suppress(OSError, ValueError):
            before |= json.loads(path.read_bytes())
        names = now.keys() | before.keys()
        changed = sorted(name for name in names if now.get(name) != before.get(name))
        if changed:
            principal = get_local_principal()
            audit_log.append(
                principal, "settings.change", " ".join(changed), "done", is_locked=True
            )
        # Last: a crash before it repeats the record, and loses none.
        write_atomically(path, json.dumps(now, indent=1).encode(), 0o600)


def _hash_settings(settings: Settings) -> dict[str, str]:
    hashes = {}
    for group in _GROUPS:
        values: dict[str, Any] = getattr(settings, group).model_dump(mode="json")
        for name, value in values.items():
            text = json.dumps(value, sort_keys=True)
            hashes[f"{group}.{name}"] = hashlib.sha256(text.encode()).hexdigest()
    return hashes
