"""Which git sources a push changes: the catalog is the list of what is heard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from config.errors import UsageError
from config.interface_settings import WebhookSettings
from graph.protocol import Source
from workers.webhooks.payloads import Notice
from workers.webhooks.repositories import normalised


@dataclass(frozen=True, slots=True)
class Followed:
    """A branch of a repository that a source follows. address: as `normalised` writes it.
    branch: "" for the default branch, whichever that is."""

    source_id: str
    address: str
    branch: str

    def takes(self, notice: Notice) -> bool:
        """Whether a push is to this branch; one to the default branch when the host told none."""
        if notice.push is None or not notice.push.branch:
            return False
        expected = self.branch or notice.default_branch
        return not expected or notice.push.branch == expected


def followed(source: Source) -> Followed | None:
    """What a source follows, None where that is no branch of a remote repository."""
    address = normalised(source.root) if source.kind == "git" else ""
    return Followed(source.source_id, address, source.branch) if address else None


def check_repositories(settings: WebhookSettings) -> None:
    """Raise UsageError for a repository of the settings that is no address."""
    for address in settings.repositories:
        if not normalised(address):
            raise UsageError(
                f"webhooks.repositories: {address!r} is no address of a repository; "
                "write https://HOST/PATH or git@HOST:PATH"
            )


def heard(
    sources: Iterable[Source],
    settings: WebhookSettings,
    only: frozenset[str] | None,
    notice: Notice,
) -> list[Followed]:
    """What follows the repository of a notice, by the settings and the secret it came with.

    only: ids of the sources that the secret counts for; None for all.
    """
    allowed = {normalised(address) for address in settings.repositories}
    return [
        one
        for one in map(followed, sources)
        if one is not None
        and one.address in notice.repositories
        and (not allowed or one.address in allowed)
        and (only is None or one.source_id in only)
    ]
