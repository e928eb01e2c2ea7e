"""Transactions of the Neo4j store about links that a person dismissed.

See `graph.neo4j.publish` for the common form of transactions.
"""

from __future__ import annotations

from collections.abc import Set

from graph.neo4j.publish import RunNamed, find_mentioning, require_locked
from graph.neo4j.rows import link_to_row, links_from_rows
from graph.records import DismissedLink, Link, LinkKey


def dismiss_link(
    run: RunNamed, retried: bool, extra_locks: Set[str], dismissed: DismissedLink
) -> set[str]:
    """Record a dismissal, delete the link, and mark its owners and ends for linking.

    Returns the skills whose links changed. Raises MissingLocksError.
    """
    del retried
    key = dismissed.key
    owners = {link.owner for link in _read_links(run, key)}
    locked = dict(run("lock", ids=sorted({*key[:2]} | owners | extra_locks)))
    links = _read_links(run, key)
    require_locked({link.owner for link in links}, locked)
    run(
        "dismiss_link",
        source=key.source,
        target=key.target,
        type=key.type.name,
        reason=dismissed.reason,
        dismissed=dismissed.dismissed,
    )
    if links:
        run("delete_links", rows=[link_to_row(link) for link in links])
    marked = {*key[:2]}.union(link.owner for link in links) & locked.keys()
    touched = {end for link in links for end in link.ends}
    epoch = run("next_epoch")[0][0]
    run("mark_for_linking", ids=sorted(marked), epoch=epoch)
    run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    return touched


def restore_link(run: RunNamed, retried: bool, extra_locks: Set[str], key: LinkKey) -> bool:
    """Delete a dismissal and mark the skills that may own the link; False without a dismissal."""
    ends = sorted({key.source, key.target})
    marked = {*ends} | find_mentioning(run, map(tuple, run("name_keys", ids=ends)))
    locked = dict(run("lock", ids=sorted(marked | extra_locks)))
    # Skills that mention these names may have been added meanwhile.
    mentioning = find_mentioning(run, map(tuple, run("name_keys", ids=ends)))
    require_locked(mentioning, locked)
    found = run("restore_link", source=key.source, target=key.target, type=key.type.name)[0][0]
    if found:
        ids = sorted(mentioning.union(ends) & locked.keys())
        run("mark_for_linking", ids=ids, epoch=run("next_epoch")[0][0])
    return bool(found) or retried


def _read_links(run: RunNamed, key: LinkKey) -> list[Link]:
    [(links,)] = run("links_among", ids=[key.source, key.target])
    return [link for link in links_from_rows(links) if link.key == key]
