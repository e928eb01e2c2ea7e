"""`links`: dismisses links between skills, lists and restores dismissed links."""

from __future__ import annotations

import click

from graph.records import LinkKey, LinkType
from workers.backend.factory import open_backend
from workers.cli.audited import audited
from workers.cli.common import (
    json_option,
    open_catalog,
    print_line,
    print_list,
    print_result,
    read_settings,
)
from workers.library.skill_data import dismissal_data

_TYPES = click.Choice([kind.value for kind in LinkType])


@click.group()
def links() -> None:
    """Dismiss links between skills, list and restore dismissed links.

    `skillbus skills show` lists the links of a skill with their evidence.
    """


@links.command("dismiss")
@click.argument("source")
@click.argument("target")
@click.argument("link_type", metavar="TYPE", type=_TYPES)
@click.option("--reason", required=True, help="Reason; shown with the dismissal.")
@json_option
@audited("links.dismiss", "source", "target", "link_type")
def dismiss(source: str, target: str, link_type: str, reason: str) -> None:
    """Remove a link until it is restored.

    The link leads from the skill SOURCE to the skill TARGET; `skills show` lists links with their
    types. It is not made again, regardless of its evidence: declarations, mentions, texts, a
    language model or outcomes. Links of the types alternative, conflict, semantic and
    used_together have no direction.

    \b
    Example:
      skillbus links dismiss team:deploy team:rollback conflict --reason "used in one run"
    """
    key = LinkKey(source, target, LinkType(link_type))
    with open_backend(read_settings(), writable=True, embeds="nothing") as backend:
        data = backend.dismiss_link(key, reason)
        backend.wait_until_linked()
    described = f"{data['type']}, {data['source']} and {data['target']}: {data['reason']}"
    print_result(data, f"dismissed: {described}")


@links.command("dismissed")
@json_option
def list_dismissed() -> None:
    """List the dismissed links with their reasons."""
    with open_catalog(read_settings()) as graph:
        found = [dismissal_data(one) for one in graph.list_dismissed_links()]
    columns = ("source", "target", "type", "dismissed_at", "reason")
    print_list(found, columns, "no dismissed links")


@links.command("restore")
@click.argument("source")
@click.argument("target")
@click.argument("link_type", metavar="TYPE", type=_TYPES)
@audited("links.restore", "source", "target", "link_type")
def restore(source: str, target: str, link_type: str) -> None:
    """Remove a dismissal.

    The link is made again if it still has evidence.

    \b
    Example:
      skillbus links restore team:deploy team:rollback conflict
    """
    key = LinkKey(source, target, LinkType(link_type))
    with open_backend(read_settings(), writable=True, embeds="nothing") as backend:
        backend.restore_link(key)
        backend.wait_until_linked()
    print_line(f"restored: {link_type}, {source} and {target}")
