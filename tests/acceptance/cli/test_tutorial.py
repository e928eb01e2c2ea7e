"""Every command of the README and of the tutorial runs, and prints what the page shows."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack.ports import free_port
from tests.support.program.console import Shell, mismatch, read_commands
from tests.support.program.program import ForkServer

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
SERVERS = {"servers.md"}
"""Pages that start real servers: run where the integration tests have them."""

_INSTALLING = ("make ", "pipx ", "uv ")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a path that is short enough for the socket of `serve` below it."""
    with tempfile.TemporaryDirectory(prefix="skillbus-") as base:
        folder = Path(base, "skillbus")
        folder.mkdir()
        yield folder


@pytest.fixture
def shell(folder: Path, fork_server: ForkServer) -> Iterator[Shell]:
    """A shell in a copy of the examples, with a home of its own."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder.parent / "bin").mkdir()
    fork_server.write_program(folder.parent / "bin")
    folders = [folder.parent / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    programs = os.pathsep.join(str(each) for each in folders)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLBUS_", "PYTHON"))}
    environment = kept | {
        "PATH": programs,
        "HOME": str(folder),
        "SKILLBUS_HOME": str(folder / "share" / "skillbus"),
        "COLUMNS": "200",
        "GIT_CONFIG_GLOBAL": str(folder / ".gitconfig"),
    }
    (folder / ".gitconfig").write_text("[user]\nname = Ana\nemail = ana@example.org\n")
    shell = Shell(folder, environment)
    yield shell
    shell.close()


def read_page(page: Path) -> str:
    """The text of a page, its ports replaced by ports that are free."""
    text = page.read_text(encoding="utf-8")
    for port in ("8765", "6390", "9418"):
        text = text.replace(f":{port}", f":{(free := free_port())}")
        text = text.replace(f"port {port}", f"port {free}").replace(f"port={port}", f"port={free}")
        text = text.replace(f"-p {port}", f"-p {free}")
    return text


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page: Path, shell: Shell, folder: Path) -> None:
    wrong = []
    for command in read_commands(read_page(page)):
        if command.text.startswith(_INSTALLING):
            continue
        try:
            printed, _ = shell.run(command.text)
        except TimeoutError as error:
            logs = [f"{log.name}:\n{log.read_text()}" for log in folder.rglob("*.log")]
            wrong += [str(error), *logs]
            break
        difference = mismatch(command.shown, printed, folder)
        if difference:
            wrong.append(f"$ {command.text}\n  {difference}")
    assert not wrong, "\n".join(wrong)
