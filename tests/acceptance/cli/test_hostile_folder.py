"""No command imports anything from the folder that it runs in, or from `PYTHONPATH`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deploy.stack.ports import free_port
from workers.processes.interpreter import child_environment, skillbus_command

ROOMS = ("config", "skills", "search", "graph", "tasks", "workers")
PROGRAM = Path(sys.executable).with_name("skillbus")

CLOSED = {
    f"SKILLBUS_SERVERS__{name}": address
    for name, address in {
        "BROKER": "redis://127.0.0.1:1/0",
        "ELASTICSEARCH": "http://127.0.0.1:1",
        "NEO4J": "bolt://127.0.0.1:1",
    }.items()
}
RUNS = {
    "sync": (["sync", "library", "--source", "s"], {}),
    "serve": (["serve"], {}),
    "mcp": (["mcp"], {}),
    "gateway": (["gateway", "--listen", f"127.0.0.1:{free_port()}"], CLOSED),
    "consume": (["consume"], CLOSED),
    "worker": (["worker"], CLOSED),
    "reindex": (["reindex"], CLOSED),
}
"""Commands of each way to start: with Celery in the process, with servers, with children."""
SIGNS = {"serve": "serving "}
"""What services say when all is loaded; then they are interrupted."""

WORKER_SECONDS, COMMAND_SECONDS = 6.0, 120.0
"""Seconds until a command is interrupted; a worker, which says nothing without servers, has
started its children by then."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every module that skillbus may import is a trap that writes its name."""
    folder = tmp_path_factory.mktemp("hostile")
    trap = f"open({str(folder / 'executed')!r}, 'a').write(__name__ + chr(10))\nraise ImportError\n"
    standard = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    names = {name for name in packages_distributions() if name.isidentifier()}
    for name in standard | names | {*ROOMS, "celeryconfig"}:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(trap)
    (folder / "library" / "one").mkdir(parents=True)
    (folder / "library" / "one" / "SKILL.md").write_text(
        "---\nname: one\ndescription: Tightens bolts\n---\n# One\n\nTurn the key.\n"
    )
    return folder


def run(command: list[str], hostile: Path, home: Path, **variables: str) -> tuple[int | None, str]:
    """Run a command in the folder until it ends or says that it is loaded; exit code and output."""
    (hostile / "executed").unlink(missing_ok=True)
    written = hostile / "output"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLBUS_", "PYTHON"))}
    with written.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=hostile,
            env=kept | {"SKILLBUS_HOME": str(home)} | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    name = command[1] if len(command) > 1 else ""
    end = time.monotonic() + (WORKER_SECONDS if name == "worker" else COMMAND_SECONDS)
    sign = SIGNS.get(name, "\0")
    while process.poll() is None and time.monotonic() < end and sign not in written.read_text():
        time.sleep(0.05)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, written.read_text()


def executed(hostile: Path) -> str:
    """The traps that were imported."""
    found = hostile / "executed"
    return found.read_text() if found.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_no_command_imports_from_its_folder(name: str, hostile: Path, tmp_path: Path) -> None:
    arguments, variables = RUNS[name]
    variables = variables | {
        "CELERY_CONFIG_MODULE": "celeryconfig",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
    }
    code, output = run([str(PROGRAM), *arguments], hostile, tmp_path / "home", **variables)
    assert executed(hostile) == "", output
    assert "Traceback" not in output
    assert SIGNS.get(name, "") in output
    assert code != -signal.SIGKILL, "it did not end when it was interrupted"
    if name == "sync":
        assert code == 0, output


def test_a_child_ignores_pythonpath(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{hostile}:")
    environment = child_environment()
    assert "PYTHONPATH" not in environment
    code, output = run(skillbus_command(["--version"]), hostile, tmp_path, **environment)
    assert (code, executed(hostile)) == (0, ""), output


def test_a_foreign_package_on_pythonpath_is_refused(hostile: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile / "config", tmp_path / "path" / "config")
    code, output = run(
        [str(PROGRAM), "--version"], tmp_path, tmp_path, PYTHONPATH=str(tmp_path / "path")
    )
    assert code == 1
    assert "'config' would be imported from" in output
    assert executed(hostile) == ""
