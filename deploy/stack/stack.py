"""A group of servers that share a folder and are started and stopped together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.stack import state
from deploy.stack.ports import free_port
from deploy.stack.server import START_SECONDS, Memory, Place, Server
from deploy.stack.servers import KINDS


class Stack:
    """Servers that start together; used as a context manager, it stops them.

    folder: folder of data (`data/NAME`) and logs (`logs/NAME.log`). tethered: the servers also end
    with this process, even if it is killed; otherwise they are recorded in `folder`, so that
    another process can adopt them. ports: client ports by server name; other ports are chosen.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tethered: bool = True,
        ports: Mapping[str, int] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.tethered = tethered
        self.memory = memory or Memory()
        self.servers: dict[str, Server] = {}
        self._wanted = dict(ports or {})

    def __enter__(self) -> Self:
        """Return the stack; starts no server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the servers and delete their data."""
        self.stop()

    def server(self, name: str, ports: Mapping[str, int] | None = None) -> Server:
        """Return the server of a name; it is created on first use, but not started.

        ports: all ports of a new server; chosen by default.
        """
        if name not in self.servers:
            kind = KINDS[name]
            joined = self.server(kind.joins).place.ports if kind.joins else {}
            place = Place(
                data=self.folder / "data" / name,
                log=self.folder / "logs" / f"{name}.log",
                ports=ports or self._choose(kind),
                joined=joined,
            )
            self.servers[name] = kind(place, self.memory, tethered=self.tethered)
        return self.servers[name]

    def adopt(self) -> None:
        """Adopt the servers that another process started in this folder; raises StackError if their
        record is invalid."""
        for name, (ports, process, helpers) in state.load(self.folder).items():
            server = self.server(name, ports)
            server.process, server.helpers = process, helpers

    def launch(self, names: Iterable[str]) -> list[Server]:
        """Start servers that are not running, and servers that they join, without waiting.

        Raises UnavailableError, StackError.
        """
        joined = [(KINDS[name].joins, name) for name in names]
        wanted = [self.server(name) for name in dict.fromkeys(filter(None, chain(*joined)))]
        missing = [server for server in wanted if not server.running()]
        for server in missing:  # find problems before any server is started
            server.prepare()
            server.check_ports()
        for server in missing:
            server.start()
            if not self.tethered:
                state.save(self.folder, self.servers)
        return wanted

    def start(self, names: Iterable[str], seconds: float = START_SECONDS) -> list[Server]:
        """Start servers in parallel and wait until all are ready.

        Raises UnavailableError if something must be installed, StackError if a server does not
        become ready; the other servers keep running until the stack is stopped.
        """
        started = self.launch(names)
        each_of(started, lambda server: server.wait_ready(seconds))
        return started

    def stop(self) -> None:
        """Kill all servers and delete their data; logs stay."""
        each_of(self.servers.values(), lambda server: server.stop(timeout=0))
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _choose(self, kind: type[Server]) -> dict[str, int]:
        taken = {port for server in self.servers.values() for port in server.place.ports.values()}
        chosen: dict[str, int] = {}
        for use in kind.ports:
            wanted = self._wanted.get(kind.name) if use == "main" else None
            chosen[use] = wanted or free_port(taken | set(chosen.values()))
        return chosen


def each_of(servers: Iterable[Server], act: Callable[[Server], None]) -> None:
    """Call a function for all servers in parallel; raise the first error when all are done."""
    several = list(servers)
    if not several:
        return
    with ThreadPoolExecutor(len(several)) as pool:
        done = [pool.submit(act, server) for server in several]
    for future in done:
        future.result()
