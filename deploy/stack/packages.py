"""Jars of the Java servers, fetched by Maven, and their launchers, compiled once.

Both lie in a cache under names made of what they come from, so that another version or another
launcher is another folder, and nothing there is ever changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.stack.errors import StackError, UnavailableError
from deploy.stack.programs import find, find_jdk

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build/stack/cache"
FETCH_SECONDS = 900
COMPILE_SECONDS = 120

_log = logging.getLogger(__name__)


def versions() -> dict[str, str]:
    """Versions of the servers, and the Java release they need (`java`)."""
    with (HERE / "versions.toml").open("rb") as file:
        return {name: str(version) for name, version in tomllib.load(file).items()}


def java() -> str:
    """The `java` that runs the servers. Raises UnavailableError."""
    return str(find_jdk(int(versions()["java"])) / "bin/java")


def class_path(server: str) -> str:
    """The class path of a server's launcher, fetched and compiled where it is not in the cache.

    The first fetch takes a minute or two. Raises UnavailableError without JDK or Maven, or where
    Maven cannot fetch; StackError where the launcher does not compile.
    """
    pinned = versions()
    compiler = find_jdk(int(pinned["java"])) / "bin/javac"
    pom = HERE / "java" / server / "pom.xml"
    sources = sorted(pom.parent.rglob("*.java"))
    version = pinned[server]
    jars = CACHE / f"{server}-{version}-jars-{_digest([pom])}"
    classes = CACHE / f"{server}-{version}-classes-{_digest([pom, *sources])}"
    with _locked(CACHE):
        _make(jars, lambda folder: _fetch(pom, version, folder))
        _make(classes, lambda folder: _compile(compiler, pinned["java"], sources, jars, folder))
    return f"{classes}:{jars}/*"


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Have `fill` fill a folder, which appears under its name only when it is whole."""
    if folder.exists():
        return
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    fill(draft)
    draft.rename(folder)


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


def _compile(
    compiler: Path, release: str, sources: Sequence[Path], jars: Path, folder: Path
) -> None:
    _run(
        [compiler, "--release", release, "-cp", f"{jars}/*", "-d", folder, *sources],
        COMPILE_SECONDS,
        StackError(f"the launcher in {sources[0].parent} does not compile"),
    )


def _run(command: Sequence[str | Path], seconds: float, problem: StackError) -> None:
    """Run a program to its end; where it fails, raise `problem` with the last lines it wrote."""
    try:
        ran = subprocess.run(  # noqa: S603 - programs found on this machine
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise type(problem)(f"{problem} within {seconds:.0f} s") from None
    if ran.returncode:
        lines = (ran.stdout + ran.stderr).strip().splitlines()[-12:]
        raise type(problem)("\n".join([f"{problem}:", *lines]))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time fills the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
