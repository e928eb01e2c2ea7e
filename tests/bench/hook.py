"""What the hook of an agent adds to each prompt.

    python -m tests.bench.hook idle [--calls N]
    python -m tests.bench.hook served --home HOME [--calls N]

Runs the command that `skillbus hook install claude-code` writes into the settings, in a shell as
the agent does, with another prompt each time, in a session of its own. `idle`: no server runs.
`served`: `skillbus serve` runs on HOME; it is started where none does. Prints JSON: wall and
processor time of a call in ms, p50, p95 and maximum, and how many calls added skills.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from config.settings import Settings
from tests.bench.run import percentiles, serving
from workers.agent_hook.installation import build_command
from workers.backend.serve_client import ServeClient
from workers.evaluation.predictions import read_jsonl

PROMPTS = Path(__file__).resolve().parents[1] / "data" / "prompts-community.jsonl"
_PAUSE_SECONDS = 0.2
"""Between two calls: an agent does not send one prompt after the other."""


class Call(NamedTuple):
    """One call of the hook; seconds."""

    wall: float
    processor: float
    has_added: bool


def run_hook(command: str, prompt: str) -> Call:
    """Run the command of a hook for a prompt; raises CalledProcessError if it fails."""
    event = {
        "session_id": uuid.uuid4().hex,
        "hook_event_name": "UserPromptSubmit",
        "prompt": prompt,
        "cwd": "/",
    }
    started = time.perf_counter()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(event).encode())
    process.stdin.close()
    output = process.stdout.read()
    _, state, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(state)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Call(wall, used.ru_utime + used.ru_stime, bool(output))


def measure(home: Path, calls: int) -> dict[str, object]:
    """Call the hook for so many prompts; the figures."""
    rows = read_jsonl(PROMPTS, ("prompt",))
    prompts = [row["prompt"] for row in rows[:: max(1, len(rows) // calls)]][:calls]
    command = build_command("claude-code", "user", Settings(home=home))
    done = []
    for prompt in prompts:
        done.append(run_hook(command, prompt))
        time.sleep(_PAUSE_SECONDS)
    return {
        "calls": len(done),
        "added": sum(call.has_added for call in done),
        "wall_ms": percentiles([1000 * call.wall for call in done]),
        "processor_ms": percentiles([1000 * call.processor for call in done]),
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("idle", "served"))
    parser.add_argument("--home", type=Path)
    parser.add_argument("--calls", type=int, default=60)
    asked = parser.parse_args()
    if asked.what == "idle":
        with tempfile.TemporaryDirectory() as home:
            print(json.dumps(measure(Path(home), asked.calls)))
        return
    if asked.home is None:
        parser.error("name the home: --home HOME")
    home = asked.home.absolute()
    is_served = ServeClient.connect(home) is not None
    with contextlib.nullcontext() if is_served else serving(home):
        measure(home, 5)  # what the first queries load
        print(json.dumps(measure(home, asked.calls)))


if __name__ == "__main__":
    main()
