"""Finds the programs that the stack needs; errors name the package to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.stack.errors import UnavailableError

JVM_FOLDER = Path("/usr/lib/jvm")
RABBITMQ_FOLDER = Path("/usr/lib/rabbitmq/bin")
"""Folder of Debian's programs; the wrappers on PATH switch to the user `rabbitmq`."""

_PACKAGES = {
    "mvn": "Maven; Debian and Ubuntu: apt install maven",
    "redis-server": "Redis; Debian and Ubuntu: apt install redis-server",
    "rabbitmq-server": "RabbitMQ; Debian and Ubuntu: apt install rabbitmq-server",
    "epmd": "Erlang's port mapper; Debian and Ubuntu: apt install erlang-base",
}


def find(name: str, *folders: Path) -> str:
    """Return the path of a program, searched in `folders`, then on PATH.

    Raises UnavailableError that names the package.
    """
    check_platform()
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"{name} is not installed: it comes with {_PACKAGES[name]}")
    return found


def find_jdk(least: int) -> Path:
    """Return the home of a JDK of release `least` or later.

    The first JDK in JAVA_HOME, on PATH or under /usr/lib/jvm is used. Raises UnavailableError that
    lists the releases found and the package to install.
    """
    check_platform()
    seen = []
    for home in _jdk_homes():
        release = _release(home)
        if release is not None and release >= least and (home / "bin/javac").exists():
            return home
        kind = "JDK" if (home / "bin/javac").exists() else "runtime without compiler"
        seen.append(f"{home} ({kind}, release {release or 'unknown'})")
    raise UnavailableError(
        f"no JDK {least} or later in JAVA_HOME, on PATH or under {JVM_FOLDER}"
        f" (found: {', '.join(seen) or 'none'}): apt install openjdk-{least}-jdk-headless, or on"
        " Debian 12, which has none, the package temurin-25-jdk of the Adoptium project"
    )


def check_platform() -> None:
    """Raise UnavailableError on other systems than Linux."""
    if sys.platform != "linux":
        raise UnavailableError(
            "the local stack starts servers on Linux only: use the images of deploy/compose.yaml"
        )


def _jdk_homes() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    java = shutil.which("java")
    if java:
        yield Path(java).resolve().parent.parent
    if JVM_FOLDER.is_dir():
        yield from sorted(path for path in JVM_FOLDER.iterdir() if (path / "bin/java").exists())


def _release(home: Path) -> int | None:
    """Return the Java release of a home, from its `release` file, else from `java -version`."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _ask(home / "bin/java")
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return int(found[1]) if found else None


def _ask(java: Path) -> str:
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stderr
