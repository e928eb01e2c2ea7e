"""Git sources of the catalog that a push changes."""

from __future__ import annotations

from collections.abc import Iterable

from config.errors import UsageError
from config.inbound_settings import WebhookSettings
from graph.records import Source
from workers.webhooks.payloads import WebhookPayload
from workers.webhooks.repository_urls import normalise_url


def check_repositories(settings: WebhookSettings) -> None:
    """Raise UsageError for an entry of `webhooks.repositories` that is not an address."""
    for address in settings.repositories:
        if not normalise_url(address):
            raise UsageError(
                f"webhooks.repositories: {address!r} is not the address of a repository; "
                "write https://HOST/PATH or git@HOST:PATH"
            )


def find_followers(
    sources: Iterable[Source],
    settings: WebhookSettings,
    only: frozenset[str] | None,
    payload: WebhookPayload,
) -> list[Source]:
    """Return the git sources of a payload's repository that settings and secret allow.

    only: ids of the sources that the secret is for; None for all.
    """
    allowed = {normalise_url(address) for address in settings.repositories}
    return [
        source
        for source in sources
        if source.kind == "git"
        and (address := normalise_url(source.root)) in payload.repositories
        and (not allowed or address in allowed)
        and (only is None or source.source_id in only)
    ]


def follows_branch(source: Source, payload: WebhookPayload) -> bool:
    """Return whether a push is to the branch of a source: any branch, if the default one is
    unknown."""
    if payload.push is None or not payload.push.branch:
        return False
    expected = source.branch or payload.default_branch
    return not expected or payload.push.branch == expected
