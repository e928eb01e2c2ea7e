"""Which git sources a push changes: the catalog is the list of what is heard."""

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
    """A branch of a repository that a source follows. address: as `normalise_url` writes it.
    branch: "" for the default branch, whichever that is."""

    source_id: str
    address: str
    branch: str

    def matches(self, payload: WebhookPayload) -> bool:
        """Whether a push is to this branch; one to the default branch when the host told none."""
        if payload.push is None or not payload.push.branch:
            return False
        expected = self.branch or payload.default_branch
        return not expected or payload.push.branch == expected


def get_followed_branch(source: Source) -> FollowedBranch | None:
    """What a source follows, None where that is no branch of a remote repository."""
    address = normalise_url(source.root) if source.kind == "git" else ""
    return FollowedBranch(source.source_id, address, source.branch) if address else None


def check_repositories(settings: WebhookSettings) -> None:
    """Raise UsageError for a repository of the settings that is no address."""
    for address in settings.repositories:
        if not normalise_url(address):
            raise UsageError(
                f"webhooks.repositories: {address!r} is no address of a repository; "
                "write https://HOST/PATH or git@HOST:PATH"
            )


def find_followed_branches(
    sources: Iterable[Source],
    settings: WebhookSettings,
    only: frozenset[str] | None,
    payload: WebhookPayload,
) -> list[FollowedBranch]:
    """What follows the repository of a notice, by the settings and the secret it came with.

    only: ids of the sources that the secret counts for; None for all.
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
