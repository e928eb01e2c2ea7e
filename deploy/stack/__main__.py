"""`python -m deploy.stack up | down | status | fetch`."""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.stack import packages, state
from deploy.stack.errors import StackError
from deploy.stack.language_model import LanguageModel
from deploy.stack.server import Memory, Server
from deploy.stack.servers import KINDS
from deploy.stack.stack import Stack, each_of

FOLDER = packages.CACHE.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    commands = {"up": up, "down": down, "status": status, "fetch": fetch}
    try:
        return commands[options.command](options)
    except (StackError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def up(options: argparse.Namespace) -> int:
    """Start the servers that are not running, wait until all are ready, and write the settings."""
    ports = {name: port for name in KINDS if (port := getattr(options, f"{name}_port"))}
    memory = Memory(options.elasticsearch_heap, options.neo4j_heap, options.neo4j_page_cache)
    left_out = set() if options.broker == "rabbitmq" else {"rabbitmq"}
    left_out |= set() if options.language_model else {"language_model"}
    left_out |= set() if options.elasticsearch_nodes == 2 else {"elasticsearch_2"}
    names = [name for name in KINDS if name not in left_out]
    with _alone(options.folder):
        stack = _stack(options.folder, ports, memory)
        _check_ports(stack, ports)
        already = {name for name, server in stack.servers.items() if server.running()}
        try:
            stack.start(names)
        except BaseException:
            each_of(
                [server for name, server in stack.servers.items() if name not in already],
                Server.stop,
            )
            raise
        settings = state.write_settings(stack.folder, stack.servers, options.broker)
    for name in names:
        print(f"{name:<15} {stack.servers[name].url}")
    model = stack.servers.get("language_model")
    if options.language_model and isinstance(model, LanguageModel):
        print("Settings of the language model alone:")
        print("  [language_model]")
        for setting, value in model.settings().items():
            print(f"  {setting} = {json.dumps(value)}")
    print(f"To use them:   . {shlex.quote(os.path.relpath(settings))}")
    print("To end them:   make stack-down")
    return 0


def down(options: argparse.Namespace) -> int:
    """Stop the servers and delete their data; logs and fetched packages stay."""
    with _alone(options.folder):
        stack = _stack(options.folder)
        running = [name for name, server in stack.servers.items() if server.running()]
        stack.stop()
        state.forget(stack.folder)
    print(f"ended: {', '.join(running) or 'nothing was running'}")
    return 0


def status(options: argparse.Namespace) -> int:
    """Print one line per server; the status is 1 if a server does not work or none was started."""
    stack = _stack(options.folder)
    if not stack.servers:
        print("nothing was started: make stack-up")
        return 1
    problems = {name: server.problem() for name, server in stack.servers.items()}
    for name, server in stack.servers.items():
        word = "ready" if problems[name] is None else f"not ready: {problems[name]}"
        pid = server.process.pid if server.process else "none"
        print(f"{name:<15} {server.url:<42} process {pid}, {server.memory_mb():.0f} MB, {word}")
    return int(any(problems.values()))


def fetch(options: argparse.Namespace) -> int:
    """Fetch and compile the packages of the Java servers, for later use without a network."""
    del options
    with TemporaryDirectory() as folder:
        for name in ("elasticsearch", "neo4j"):
            Stack(Path(folder)).server(name).prepare()
    return 0


def _stack(
    folder: Path, ports: dict[str, int] | None = None, memory: Memory | None = None
) -> Stack:
    """Return the stack of a folder, with the servers that were started there before."""
    stack = Stack(folder, tethered=False, ports=ports, memory=memory)
    stack.adopt()
    return stack


def _check_ports(stack: Stack, ports: dict[str, int]) -> None:
    for name, port in ports.items():
        server = stack.servers.get(name)
        if server is not None and server.port != port:
            raise StackError(
                f"{name} was started on port {server.port} before: end it first (make stack-down)"
            )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, so that commands do not run concurrently."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StackError(f"another command is at work on {folder}: wait until it ends") from None
    finally:
        os.close(descriptor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.stack",
        description="Elasticsearch, Neo4j, Redis, RabbitMQ and a language model here, for tests and"
        " trials.",
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="data, logs and settings (%(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help=up.__doc__)
    starting.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    starting.add_argument(
        "--elasticsearch-nodes",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: another node joins, for shards and replicas (%(default)s)",
    )
    starting.add_argument(
        "--language-model",
        action="store_true",
        help="also start a small language model of random weights",
    )
    for name in KINDS:
        option = f"--{name.replace('_', '-')}-port"
        starting.add_argument(option, type=_port, metavar="PORT", help="(a free one)")
    defaults = Memory()
    for option in ("elasticsearch_heap", "neo4j_heap", "neo4j_page_cache"):
        starting.add_argument(
            "--" + option.replace("_", "-"),
            metavar="SIZE",
            default=getattr(defaults, option),
            help="(%(default)s)",
        )
    commands.add_parser("down", help=down.__doc__)
    commands.add_parser("status", help=status.__doc__)
    commands.add_parser("fetch", help=fetch.__doc__)
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
