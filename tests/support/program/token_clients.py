"""HTTP clients with a token each, for a served library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import httpx

from deploy.stack.ports import free_port
from tests.support.program.program import NO_TLS, Skillbus

Clients = dict[str, httpx.Client]


@contextmanager
def serving_clients(skillbus: Skillbus, scopes: Mapping[str, str]) -> Iterator[Clients]:
    """Serve the library; a client by name with a new token of that name and scope."""
    secrets = {
        name: skillbus("tokens", "add", name, "--scope", scope).out.strip()
        for name, scope in scopes.items()
    }
    port = free_port()
    with (
        skillbus.serving("--listen", f"127.0.0.1:{port}"),
        open_clients(port, secrets) as clients,
    ):
        yield clients


@contextmanager
def open_clients(port: int, secrets: Mapping[str, str]) -> Iterator[Clients]:
    """A client of the server on this port for each token, by name."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                httpx.Client(
                    base_url=f"http://127.0.0.1:{port}",
                    headers={"Authorization": f"Bearer {secret}"},
                    timeout=200,
                    verify=NO_TLS,
                )
            )
            for name, secret in secrets.items()
        }
