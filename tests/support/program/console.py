"""Runs the console sessions of a Markdown page and compares the shape of their output.

A session is every ```console block of a page, in order, in one shell. A line that begins with `$ `
is a command, `> ` continues it, the lines below it are its output. In the output `…` matches the
rest of a line, and a line that is only `…` matches any number of lines. Numbers, hexadecimal ids
and paths below the session's folder are compared by kind, not by value.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"\b[0-9a-f]{12,64}\b|\b[0-9a-f]{12}-[0-9a-f]{8}\b|\bskb_[\w-]+")
_PRECISION = re.compile(r"(?<=:)(?:bf16|f32)(?=:)")
"""Of the encoder, by what the processor can do."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_END = re.compile(r"\x01(\d+)\x01\n")
_MORE = "…"


@dataclass(slots=True)
class Command:
    """A command of a page, and the output that the page shows for it."""

    text: str
    shown: list[str] = field(default_factory=list)


def read_commands(page: str) -> list[Command]:
    """The commands of all console blocks of a Markdown text, in order."""
    commands: list[Command] = []
    for block in _FENCE.findall(page):
        continued = False
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif continued or line.startswith("> "):
                commands[-1].text += "\n" + line.removeprefix("> ")
            else:
                commands[-1].shown.append(line)
                continue
            continued = commands[-1].text.endswith("\\")
    return commands


class Shell:
    """One bash process that runs commands one after another, as a terminal session does."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, text: str, seconds: float = 120.0) -> tuple[list[str], int]:
        """The output lines and the exit code of a command."""
        assert self._process.stdin is not None
        script = self._folder / ".command"
        script.write_text(text + "\n", encoding="utf-8")
        line = f"source '{script}' </dev/null; printf '\\001%d\\001\\n' $?\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        output = self._read(seconds, text)
        return output[0].splitlines(), output[1]

    def _read(self, seconds: float, text: str) -> tuple[str, int]:
        assert self._process.stdout is not None
        end, found = time.monotonic() + seconds, b""
        while not (match := _END.search(found.decode("utf-8", "replace"))):
            ready, _, _ = select.select([self._process.stdout], [], [], end - time.monotonic())
            if not ready:
                raise TimeoutError(f"no end of {text!r} within {seconds:g} s: {found[-2000:]!r}")
            found += os.read(self._process.stdout.fileno(), 65_536)
        return found.decode("utf-8", "replace")[: match.start()], int(match[1])

    def close(self) -> None:
        """End the shell and everything that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, number)
                self._process.wait(timeout=60)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def normalise(line: str, folder: Path) -> str:
    """A line with ids, numbers, paths and runs of blanks replaced by their kind."""
    line = line.replace(str(folder), "/home/ana/skillbus").replace("/home/ana/.local", "/home/ana")
    line = _PRECISION.sub("PRECISION", line)
    line = _ID.sub("ID", line)
    line = _NUMBER.sub("N", line)
    return re.sub(r"\s+", " ", line).strip()


def mismatch(shown: list[str], printed: list[str], folder: Path) -> str:
    """The first shown line that the printed output lacks, "" if the shapes agree."""
    actual = [normalise(line, folder) for line in printed]
    place, skipping = 0, False
    for line in shown:
        if line.strip() == _MORE:
            skipping = True
            continue
        wanted = normalise(line, folder)
        found = next(
            (at for at in _candidates(place, len(actual), skipping) if _agrees(wanted, actual[at])),
            None,
        )
        if found is None:
            got = printed[place] if place < len(printed) else "(end of the output)"
            return f"shown {line!r}, printed {got!r}"
        place, skipping = found + 1, False
    if place < len(actual) and not skipping:
        return f"printed {printed[place]!r}, which the page does not show"
    return ""


def _candidates(place: int, end: int, skipping: bool) -> Iterator[int]:
    yield from range(place, end if skipping else min(place + 1, end))


def _agrees(wanted: str, actual: str) -> bool:
    parts = (re.escape(part) for part in wanted.split(_MORE))
    return re.fullmatch(".*".join(parts), actual) is not None
