"""Git sources of the catalog that a push changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from config.errors import UsageError
from config.inbound_settings import WebhookSettings
from graph.records import Source
from workers.webhooks.payloads import WebhookPayload
from workers.webhooks.repository_urls import normalise_url


@dataclass(frozen=True, slots=True)
class FollowedBranch:
    """A branch of a repository that a source follows.

    address: in the form of `normalise_url`. branch: "" for the default branch.
    """

    source_id: str
    address: str
    branch: str

    def matches(self, payload: WebhookPayload) -> bool:
        """Return whether a push is to this branch: any branch, if the default one is unknown."""
        if payload.push is None or not payload.push.branch:
            return False
        expected = self.branch or payload.default_branch
        return not expected or payload.push.branch == expected


def get_followed_branch(source: Source) -> FollowedBranch | None:
    """Return the branch that a source follows, None unless it is a remote repository."""
    address = normalise_url(source.root) if source.kind == "git" else ""
    return FollowedBranch(source.source_id, address, source.branch) if address else None


def check_repositories(settings: WebhookSettings) -> None:
    """Raise UsageError for an entry of `webhooks.repositories` that is not an address."""
    for address in settings.repositories:
        if not normalise_url(address):
            raise UsageError(
                f"webhooks.repositories: {address!r} is not the address of a repository; "
                "write https://HOST/PATH or git@HOST:PATH"
            )


def find_followed_branches(
    sources: Iterable[Source],
    settings: WebhookSettings,
    only: frozenset[str] | None,
    payload: WebhookPayload,
) -> list[FollowedBranch]:
    """Return the followed branches of a payload's repository that settings and secret allow.

    only: ids of the sources that the secret is for; None for all.
    """
    allowed = {normalise_url(address) for address in settings.repositories}
    return [
        one
        for one in map(get_followed_branch, sources)
        if one is not None
        and one.address in payload.repositories
        and (not allowed or one.address in allowed)
        and (only is None or one.source_id in only)
    ]
