"""Jars of the Java servers, fetched by Maven, and their compiled launchers.

Both are cached in folders named by a digest of their sources; folders are never changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError, UnavailableError
from deploy.stack.programs import find, find_jdk

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build/stack/cache"
FETCH_SECONDS = 900
COMPILE_SECONDS = 120

_log = logging.getLogger(__name__)


def versions() -> dict[str, str]:
    """Return the versions of the servers, and the Java release that they need (`java`)."""
    with (HERE / "versions.toml").open("rb") as file:
        return {name: str(version) for name, version in tomllib.load(file).items()}


def jdk() -> Path:
    """Return the home of the JDK that runs the servers. Raises UnavailableError."""
    return find_jdk(int(versions()["java"]))


@dataclass(frozen=True)
class Package:
    """Files to run one Java server."""

    java: Path
    class_path: str
    archive: Path
    """Class archive of the virtual machine, written by the server; halves the start time."""


def package(server: str) -> Package:
    """Return the package of a server, fetched and compiled unless it is cached.

    The first fetch takes a minute or two. Raises UnavailableError without JDK or Maven, or if Maven
    cannot fetch; StackError if the launcher does not compile.
    """
    pinned = versions()
    home = jdk()
    pom = HERE / "java" / server / "pom.xml"
    sources = sorted(pom.parent.rglob("*.java"))
    name = f"{server}-{pinned[server]}"
    jars = CACHE / f"{name}-jars-{_digest([pom])}"
    launcher = CACHE / f"{name}-launcher-{_digest([pom, *sources])}"
    archive = CACHE / f"{name}-archive-{_digest([pom, *sources, home / 'release'])}"
    make(jars, lambda folder: _fetch(pom, pinned[server], folder))
    make(launcher, lambda folder: _compile(home, pinned["java"], sources, jars, folder))
    return Package(
        java=home / "bin/java",
        class_path=f"{launcher / 'launcher.jar'}:{jars}/*",
        archive=archive / "classes.jsa",
    )


def make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder of the cache with `fill`, atomically, unless it exists.

    Waits while another process creates it.
    """
    if folder.exists():
        return
    with _locked(folder.parent / f"{folder.name}.lock"):
        if folder.exists():
            return
        draft = folder.with_name(f"{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        fill(draft)
        draft.rename(folder)


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes() if path.exists() else str(path).encode())
    return digest.hexdigest()[:10]


def _fetch(pom: Path, version: str, folder: Path) -> None:
    _log.info("fetching %s %s with Maven, which is done once", pom.parent.name, version)
    _run(
        [
            find("mvn"),
            "--batch-mode",
            "--quiet",
            f"--file={pom}",
            f"-Dserver.version={version}",
            f"-DoutputDirectory={folder}",
            "-DincludeScope=runtime",
            "dependency:copy-dependencies",
        ],
        FETCH_SECONDS,
        UnavailableError(f"Maven could not fetch {pom.parent.name} {version}"),
    )


def _compile(home: Path, release: str, sources: Sequence[Path], jars: Path, folder: Path) -> None:
    classes = folder / "classes"
    _run(
        [home / "bin/javac", "--release", release, "-cp", f"{jars}/*", "-d", classes, *sources],
        COMPILE_SECONDS,
        StackError(f"the launcher in {sources[0].parent} does not compile"),
    )
    # The virtual machine cannot archive classes from folders, only from jars.
    with zipfile.ZipFile(folder / "launcher.jar", "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))


def _run(command: Sequence[str | Path], seconds: float, problem: StackError) -> None:
    """Run a program; if it fails, raise `problem` with the last lines of its output."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise type(problem)(f"{problem} within {seconds:.0f} s") from None
    if ran.returncode:
        lines = (ran.stdout + ran.stderr).strip().splitlines()[-12:]
        raise type(problem)("\n".join([f"{problem}:", *lines]))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
