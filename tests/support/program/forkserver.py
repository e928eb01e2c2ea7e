"""Runs the command line in forked children of a process that has everything imported.

Importing torch and loading the model takes seconds; a fork takes milliseconds. The children run
the real program on the real model, which a process of its own loads once and which encodes each
text once. A job is a JSON line on standard input (`args`, `env`, `cwd`, `stdin`, `output`); answers
are JSON lines on standard output: `{"started": pid}` for each job, in order, and
`{"ended": pid, "code": exit code}`.

Shells give it jobs by `forked_command.py` over the socket that the first argument names: JSON
(`args`, `env`, `cwd`) with the three standard streams of the shell's process, whose whole
environment it gets. It answers the same way, and kills a command whose connection is closed.
The second argument names the file of vectors, which several servers may share.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import Any

# Python put this folder first, where modules may be called like packages that are loaded here.
sys.path.pop(0)

from tests.support.program import loopback_only

PRELOADED = (
    "anyio._backends._asyncio",
    "celery.app.control",
    "celery.app.events",
    "celery.apps.worker",
    "celery.backends.cache",
    "celery.backends.redis",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "celery.events",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "elasticsearch",
    "encodings.cp437",
    "graph.local.store",
    "graph.neo4j.store",
    "kombu.matcher",
    "kombu.pidbox",
    "kombu.transport.memory",
    "kombu.transport.pyamqp",
    "kombu.transport.redis",
    "numpy.ma",
    "prometheus_client",
    "pydantic.v1",
    "rich.logging",
    "rich.progress",
    "tantivy",
    "tasks.broker.memory_transport",
    "tasks.history.sqlite_reviews",
    "tasks.outcomes.sqlite",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
    "uvicorn.server",
    "workers.backend.distributed",
    "workers.backend.embedded",
    "workers.backend.local_replacement",
    "workers.backend.selector",
    "workers.backup.home",
    "workers.library.findings",
    "workers.mcp.http",
    "workers.mcp.stdio",
    "workers.processes.serve",
    "workers.processes.worker",
)
"""Modules that many commands import when they need them; those of `workers.cli` besides."""

OTHER_MODELS = ("sentence_transformers", "transformers.models.bert.modeling_bert")
"""What only commands with a reranker or another encoder need; it takes as long as all the rest."""

FORMER_VERSION = "FORMER_VERSION"
"""Variable of a job that is to run as the version before this one."""

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "skills"

OTHER_MODEL_SETTINGS = {"SKILLBUS_ENCODER__MODEL", "SKILLBUS_RERANKER__MODEL"}


def preload() -> None:
    """Import what any command needs, and have every module get the encoder that all forks share."""
    loopback_only.install()
    import celery.utils.imports

    import search.models.load_models
    from config.settings import EncoderSettings
    from tests.support.program.remembered_vectors import RememberingEncoder

    make = search.models.load_models.load_encoder
    shared = RememberingEncoder(Path(sys.argv[2]), network_socket())

    def load_encoder(settings: EncoderSettings) -> Any:
        return shared if settings == EncoderSettings() else make(settings)

    search.models.load_models.load_encoder = load_encoder
    import workers.cli

    commands = [one.name for one in pkgutil.walk_packages(workers.cli.__path__, "workers.cli.")]
    for module in (*PRELOADED, *commands):
        if not module.endswith(".__main__"):
            importlib.import_module(module)
    prepare_examples()
    celery.utils.imports.load_extension_class_names("celery.result_backends")


def prepare_examples() -> None:
    """Prepare skills, so that the caches that a process fills at its first skill are full."""
    from config.settings import LimitSettings
    from tasks.ingest.preparation.prepare import (
        PreparationRequest,
        PreparationSettings,
        prepare_skill,
    )
    from tasks.sources.directory import DirectoryReader, to_parse_limits

    limits = LimitSettings()
    reader = DirectoryReader(EXAMPLES, limits)
    for path in reader.scan("").signatures:
        request = PreparationRequest(path, reader.read(path))
        prepare_skill(request, PreparationSettings(to_parse_limits(limits)))


def network_socket() -> Path:
    """Where the process with the network listens."""
    return Path(sys.argv[1]).with_name("network.sock")


def preload_for(job: dict[str, Any]) -> None:
    """Import what a job needs and most others do not."""
    words = set(job["args"])
    modules: list[str] = []
    if {"encoder", "reranker"} & words or OTHER_MODEL_SETTINGS & job["env"].keys():
        modules += OTHER_MODELS
    if {"train", "roles"} <= words:
        modules.append("sklearn.linear_model")
    missing = [module for module in modules if module not in sys.modules]
    for module in missing:
        importlib.import_module(module)
    if missing:
        leave_to_the_parent()


def leave_to_the_parent() -> None:
    """Have children neither collect nor take apart what is loaded: every page that they write to
    is copied, and torch alone has hundreds of finalizers."""
    gc.freeze()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # there is no public one
        finalizer.atexit = False


def say(answer: dict[str, int]) -> None:
    """Write one answer."""
    os.write(1, (json.dumps(answer) + "\n").encode())


shells: dict[int, socket.socket] = {}
"""Connections of shells, by the process that runs their command."""


def take_from_shell(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for the job of a shell that connects; in the child, its job."""
    shell, _ = listener.accept()
    text, streams, _, _ = socket.recv_fds(shell, 65536, 3)
    while text and not text.endswith(b"\n"):
        text += shell.recv(65536)
    job: dict[str, Any] = json.loads(text)
    preload_for(job)
    pid = os.fork()
    if pid == 0:
        return {**job, "streams": streams}
    for stream in streams:
        os.close(stream)
    shells[pid] = shell
    shell.sendall((json.dumps({"started": pid}) + "\n").encode())
    return None


def kill_abandoned(ready: list[Any]) -> None:
    """Kill commands whose shell is gone."""
    for pid, shell in list(shells.items()):
        if shell in ready:  # it has nothing more to say
            shells.pop(pid).close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def serve(wake: int, listener: socket.socket) -> dict[str, Any] | None:
    """Fork for every job until standard input ends (None); in a child, its job."""
    buffer = b""
    while True:
        watched: list[Any] = [0, wake, listener, *shells.values()]
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            os.read(wake, 4096)
            reap()
        kill_abandoned(ready)
        if listener in ready and (job := take_from_shell(listener)):
            return job
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return None
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            asked: dict[str, Any] = json.loads(line)
            preload_for(asked)
            pid = os.fork()
            if pid == 0:
                return asked
            say({"started": pid})


def reap() -> None:
    """Report children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        answer = {"ended": pid, "code": os.waitstatus_to_exitcode(status)}
        shell = shells.pop(pid, None)
        if shell is None:
            say(answer)
            continue
        with shell, contextlib.suppress(OSError):
            shell.sendall((json.dumps(answer) + "\n").encode())


def become(job: dict[str, Any]) -> None:
    """Make this child look like a process started for its job."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A shell that starts the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for shell in shells.values():
        shell.close()
    for target, file in enumerate(job.get("streams") or open_streams(job)):
        os.dup2(file, target)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the process
    os.chdir(job["cwd"])
    if "streams" in job:
        os.environ.clear()
    for name, value in job["env"].items():
        os.environ[name] = value
    sys.argv = ["skillbus", *job["args"]]


def open_streams(job: dict[str, Any]) -> list[int]:
    """The files that a job names for its standard streams."""
    outputs = [f"{job['output']}.{name}" for name in ("out", "err")]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return [os.open(job["stdin"], os.O_RDONLY), *(os.open(name, flags) for name in outputs)]


def main() -> None:
    """Preload, say so, and serve; in a child, run the program to its end."""
    preload()
    from tests.support.program.remembered_vectors import start_network

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    leave_to_the_parent()
    start_network(network_socket())
    say({"started": 0})
    job = serve(wake, listener)
    if job is None:
        os._exit(0)
    listener.close()
    become(job)
    if os.environ.pop(FORMER_VERSION, ""):
        from tests.support.program.former_version import become_former

        become_former()
    from workers.cli import main as skillbus

    code = 0
    try:
        skillbus()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 70
    finish(code)


def finish(code: int) -> None:
    """End as an interpreter does, threads and exit handlers first, but leave memory alone.

    Taking apart all that was imported would copy every page that the fork shares.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
