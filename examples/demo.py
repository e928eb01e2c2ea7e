"""What skillbus does, shown on a copy of the example skills in a folder of its own.

Every command is printed before its output and is what one would type. The home and the copy of the
skills are temporary; nothing outside them is touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

SKILLS = Path(__file__).parent / "skills"
FROST = "After last night's frost, which e-bikes get a fresh battery first?"
MAP = "Show the new stations on a map in the app without running a tile server"
KNIT = "Knit a woollen jumper with raglan sleeves"
PATIENCE = 60.0


class Demo:
    """Runs commands in one folder, as a shell would, and stops when one surprises."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "home" / "serve.sock"
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SKILLBUS_")}
        self.environment = kept | {"PATH": programs, "SKILLBUS_HOME": str(folder / "home")}

    def say(self, text: str) -> None:
        """A remark between commands."""
        print(f"\n# {text}", flush=True)

    def run(self, command: str, code: int = 0) -> None:
        """Print a command, run it, and expect its exit code."""
        print(f"\n$ {command}", flush=True)
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, env=self.environment)
        if done.returncode != code:
            sys.exit(f"demo: exit code {done.returncode}, not {code}, from: {command}")
        if code:
            print(f"(exit code {code})", flush=True)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Print a command and start it in the background."""
        print(f"\n$ {command} &", flush=True)
        return subprocess.Popen(command.split(), cwd=self.folder, env=self.environment)

    def published(self) -> dict[str, int]:
        """Published skills with their revision, as `skillbus serve` lists them."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(transport=transport, base_url="http://skillbus") as client:
            answer = client.get("/v1/skills", params={"state": "published", "limit": 200})
        answer.raise_for_status()
        return {one["skill_id"]: one["seq"] for one in answer.json()["skills"]}

    def wait_until(self, noticed: Callable[[], bool]) -> None:
        """Wait until the watcher has done its work."""
        started = time.monotonic()
        while not noticed():
            if time.monotonic() - started > PATIENCE:
                sys.exit(f"demo: nothing was noticed within {PATIENCE:g} s")
            time.sleep(0.1)


def show(demo: Demo) -> None:
    """The demonstration."""
    demo.say("A folder of skills becomes a library. One skill is broken on purpose, hence code 4.")
    demo.run("skillbus sync examples", code=4)
    demo.run("skillbus failures")

    demo.say("Serving: the model stays loaded, and the folder is watched.")
    serving = demo.start("skillbus serve")
    try:
        demo.wait_until(demo.socket.exists)
        answers(demo)
        changes(demo)
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(timeout=60)
    demo.say("That was all. The temporary home and the copy of the skills are gone now.")
    demo.say(
        "Look at a library of yours in a browser: `skillbus sync FOLDER`, then "
        "`skillbus serve --listen 127.0.0.1:8765`\n# and open http://127.0.0.1:8765/console"
    )


def answers(demo: Demo) -> None:
    """What queries give."""
    demo.say("One skill is asked for; the skills that it declares to depend on come along.")
    demo.run(f'skillbus query "{FROST}" --top 1 --budget 2500')
    demo.say("The same for a prompt, in 600 tokens, its first lines.")
    demo.run(f'skillbus query "{FROST}" --top 1 --budget 600 --format markdown | head -n 24')
    demo.say("Nothing in the library is about this: better no skill than a wrong one.")
    demo.run(f'skillbus query "{KNIT}"', code=3)


def changes(demo: Demo) -> None:
    """What the library makes of an edit, a rename and a removal."""
    before = demo.published()
    demo.say("An edit: the next answer has it.")
    demo.run(
        r"printf '\n## Frost\n\nWarm spare packs for forty minutes in the heated locker first.\n'"
        " >> examples/battery-swap-planning/SKILL.md"
    )
    skill = "examples:battery-swap-planning"
    demo.wait_until(lambda: demo.published()[skill] > before[skill])
    demo.run(
        'skillbus query "how long do spare battery packs stay in the heated locker?"'
        " --top 1 --format markdown | grep -C 2 'heated locker'"
    )

    demo.say("A rename: the old id is retired.")
    demo.run("mv examples/battery-swap-planning examples/ebike-battery-rounds")
    demo.wait_until(lambda: skill not in demo.published())
    demo.wait_until(lambda: "examples:ebike-battery-rounds" in demo.published())
    demo.run("skillbus skills list | grep battery")
    demo.run(f'skillbus query "{FROST}" --top 1 --budget 2500 | head -n 4')

    demo.say("A removal: gone from the next answer.")
    demo.run(f'skillbus query "{MAP}" --top 3 | grep "^[0-9]"')
    demo.run("rm -r examples/map-tiles")
    demo.wait_until(lambda: "examples:map-tiles" not in demo.published())
    demo.run(f'skillbus query "{MAP}" --top 3 | grep "^[0-9]"')
    demo.run("skillbus status")


def main() -> None:
    """Run the demonstration in a temporary folder."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skillbus-demo-") as name:
        shutil.copytree(SKILLS, Path(name, "examples"))
        show(Demo(Path(name)))
    print(f"\nDemo done in {time.monotonic() - started:.0f} s.")


if __name__ == "__main__":
    main()
