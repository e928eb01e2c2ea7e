"""`tokens`: adds, lists and revokes the tokens of the gateway."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from config.errors import UsageError
from workers.backend.home import create_home
from workers.cli.audited import audited
from workers.cli.common import (
    format_time,
    json_option,
    print_list,
    print_result,
    print_to_stderr,
    read_settings,
)
from workers.http.tokens import TokenScope, open_token_store

_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([mhd])")


@click.group()
def tokens() -> None:
    """Add, list and revoke access tokens.

    A running gateway applies changes at once.
    """


@tokens.command("add")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice([scope.name.lower() for scope in TokenScope]),
    default="read",
    show_default=True,
    help="read: send queries and read; write: also change skills and sources; admin: everything, "
    "including all sources, queries of others, git repositories, reviews, purges and tokens.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Group whose sources the token reads, in addition to those of `everyone`; repeatable.",
)
@click.option(
    "--expires", metavar="DURATION", help="Lifetime, such as 30m, 12h or 90d [default: unlimited]."
)
@json_option
@audited("tokens.add", "name", "scope", "groups")
def add(name: str, scope: str, groups: tuple[str, ...], expires: str | None) -> None:
    """Create a token and print it once: only its SHA-256 is stored.

    \b
    Examples:
      skillbus tokens add ci --scope write --expires 90d
      skillbus tokens add ledger-agent --group finance
    """
    settings = read_settings()
    ends = time.time() + parse_duration(expires, "--expires") if expires is not None else 0.0
    create_home(settings.home)
    secret = open_token_store(settings).add(name, TokenScope[scope.upper()], ends, groups)
    data = {
        "name": name,
        "scope": scope,
        "groups": sorted(set(groups)),
        "expires": format_time(ends) if ends else None,
        "token": secret,
    }
    print_result(data, secret)
    print_to_stderr(f"token {name} created with scope {scope}; it is not shown again")


@tokens.command("list")
@json_option
def list_tokens() -> None:
    """List tokens by name, with scope and expiry.

    The tokens themselves are not stored.
    """
    now = time.time()
    rows: list[dict[str, Any]] = [
        {
            "name": token.name,
            "scope": token.scope,
            "groups": list(token.groups),
            "created": format_time(token.created),
            "expires": format_time(token.expires) if token.expires else None,
            "expired": token.is_expired(now),
        }
        for token in open_token_store(read_settings()).all()
    ]
    columns = ("token", "scope", "groups", "created", "expires")
    print_list(rows, columns, "no tokens", _to_cells)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    expires = f"{row['expires'] or 'never'}{' (expired)' if row['expired'] else ''}"
    return row["name"], row["scope"], " ".join(row["groups"]) or "-", row["created"], expires


@tokens.command("revoke")
@click.argument("name")
@audited("tokens.revoke", "name")
def revoke(name: str) -> None:
    """Revoke a token: requests with it are refused from now on."""
    open_token_store(read_settings()).revoke(name)
    click.echo(f"token {name} revoked")


def parse_duration(text: str, option: str) -> int:
    """Return the seconds of a duration such as `90d`; raises UsageError for another form."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise UsageError(f"{option} {text}: write minutes, hours or days, such as 30m, 12h or 90d")
    return int(found[1]) * _UNIT_SECONDS[found[2]]
