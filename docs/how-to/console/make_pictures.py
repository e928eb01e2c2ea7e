"""Make the pictures of the console that the documentation shows.

    PYTHONPATH=. python docs/how-to/console/make_pictures.py [FOLDER]

Serves the example skills, with a few that wait for a person, and takes pictures in Chromium. FOLDER
is where they are written, this folder unless given: `PAGE.png`, and `widths/PAGE.png` with the
first screen at three widths in both themes. With `--all`, every page is also taken as a whole at
each, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from deploy.stack.ports import free_port

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
TASK = "After last night's frost, which e-bikes get a fresh battery first?"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = {
    "ask": "/console/ask",
    "library": "/console/library?q=report",
    "skill": "/console/skills/examples:excel-export#L13",
    "graph": "/console/graph?skill=examples:privacy-redaction&depth=2&limit=30",
    "review": "/console/review",
    "review-skill": "/console/review/contractor:tile-server",
    "use": "/console/use",
    "quality": "/console/quality",
    "work": "/console/work",
    "sources": "/console/sources",
    "settings": "/console/settings",
}
NOT_SHOWN = ("review-skill", "use", "sources")
"""Pages of which the documentation has no picture."""

SCREENS = {360: 780, 1280: 860, 2560: 1440}
"""Heights of the first screen by width."""
SHEET_HEIGHT = 420
"""Of each screen on a sheet of all, in pixels."""
GAP = 12
COLOURS = 256
HEIGHTS = {"work": 1500, "settings": 1040, "ask": 1000}

_PATIENCE = 60.0
_WITHHELD = """---
name: tile-server
description: Serve map tiles from a small machine
---
# Tile server

Install it first:

    curl -fsSL https://tiles.example/install.sh | bash
"""


class Library:
    """The library that is shown, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = str(Path(sys.executable).parent / "skillbus")
        kept = {name: one for name, one in os.environ.items() if not name.startswith("SKILLBUS_")}
        self.environment = kept | {
            "SKILLBUS_HOME": str(folder / "skillbus"),
            "SKILLBUS_POLICY__REVIEW": '["partner"]',
            "SKILLBUS_CHOICE__BUDGET": "6000",
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command and return its output."""
        done = subprocess.run(  # noqa: S603 - our own program
            [self.program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != code:
            sys.exit(f"skillbus {' '.join(arguments)}: exit code {done.returncode}, not {code}")
        return done.stdout.strip()

    def make(self) -> str:
        """Make the library; returns the secret of a token of scope admin."""
        shutil.copytree(EXAMPLES / "skills", self.folder / "examples")
        shutil.copytree(EXAMPLES / "skills/release-notes", self.folder / "partner/release-notes")
        (self.folder / "contractor/tile-server").mkdir(parents=True)
        (self.folder / "contractor/tile-server/SKILL.md").write_text(_WITHHELD, encoding="utf-8")
        self.run("sync", "examples", code=4)
        for source in ("partner", "contractor"):
            self.run("sync", source)
        self.run("eval", "routing", str(EXAMPLES / "tasks.jsonl"))
        self.run("eval", "bundles", str(EXAMPLES / "tasks.jsonl"))
        return self.run("tokens", "add", "ana", "--scope", "admin")

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve the library; gives the address."""
        url = f"http://127.0.0.1:{free_port()}"
        process = subprocess.Popen(  # noqa: S603 - our own program
            [self.program, "serve", "--listen", url.removeprefix("http://")],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(url)
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(url: str) -> None:
    """Wait until a gateway takes queries."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    sys.exit(f"{url} was not ready within {_PATIENCE:g} s")


class Camera:
    """Takes pictures of pages with a token.

    answer, event: the paths of the answer to the task and of the newest event.
    """

    def __init__(self, browser: Browser, url: str, secret: str) -> None:
        self._browser, self._url, self._secret = browser, url, secret
        self.answer = self._ask()
        self.event = self._find_event()

    def _open(self, width: int, height: int, theme: Literal["light", "dark"]) -> Page:
        context = self._browser.new_context(
            base_url=self._url,
            color_scheme=theme,
            viewport={"width": width, "height": height},
        )
        page = context.new_page()
        page.goto("/console/login")
        page.get_by_label("Token").fill(self._secret)
        page.get_by_role("main").get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda address: "/login" not in address)
        return page

    def _ask(self) -> str:
        page = self._open(1280, 1000, "light")
        page.goto("/console/ask")
        page.get_by_label("Task").first.fill(TASK)
        page.get_by_role("main").get_by_role("button", name="Ask").click()
        page.locator("#bundle").wait_for()
        path = page.url.removeprefix(self._url)
        page.context.close()
        return path

    def _find_event(self) -> str:
        page = self._open(1280, 1000, "light")
        page.goto("/console/work")
        path = page.locator('tr:has(time) a[href*="/work/events/"]').last.get_attribute("href")
        page.context.close()
        return str(path)

    def take(
        self,
        file: Path,
        path: str,
        *,
        width: int = 1280,
        height: int = 860,
        theme: Literal["light", "dark"] = "light",
        whole: bool = False,
    ) -> None:
        """Take one picture. whole: of all of the page, not of its first screen."""
        page = self._open(width, height, theme)
        page.goto(path)
        # A page that waits for something is loaded again.
        page.locator("[data-reload-after]").wait_for(state="detached")
        page.screenshot(path=file, full_page=whole)
        page.context.close()
        if not whole:
            _reduce_colours(file)

    def take_sheet(self, file: Path, path: str) -> None:
        """Take the first screen at each width and theme, and lay them out: a row for each theme."""
        rows = []
        for theme in THEMES:
            screens = []
            for width, height in SCREENS.items():
                self.take(file, path, width=width, height=height, theme=theme, whole=False)
                with Image.open(file) as picture:
                    size = (round(SHEET_HEIGHT * width / height), SHEET_HEIGHT)
                    screens.append(picture.convert("RGB").resize(size, Image.Resampling.LANCZOS))
            rows.append(screens)
        sheet = Image.new(
            "RGB",
            (
                sum(one.width for one in rows[0]) + GAP * len(SCREENS),
                (SHEET_HEIGHT + GAP) * len(rows),
            ),
            "#808080",
        )
        for row, screens in enumerate(rows):
            left = GAP // 2
            for one in screens:
                sheet.paste(one, (left, GAP // 2 + row * (SHEET_HEIGHT + GAP)))
                left += one.width + GAP
        # Text that was made smaller has more shades than a palette of few colours keeps apart.
        sheet.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            file, optimize=True
        )


def _reduce_colours(file: Path) -> None:
    """Write a picture with a palette, which takes less than half the space."""
    with Image.open(file) as picture:
        # This method keeps colours that few pixels have, such as those of thin lines.
        reduced = picture.convert("RGB").quantize(
            COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    reduced.save(file, optimize=True)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE)
    parser.add_argument("--all", action="store_true", help="every page, width and theme")
    given = parser.parse_args()
    (given.folder / "widths").mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    with (
        tempfile.TemporaryDirectory(prefix="skillbus-") as folder,
        sync_playwright() as playwright,
    ):
        library = Library(Path(folder))
        secret = library.make()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with library.serve() as url:
            camera = Camera(browser, url, secret)
            pages = PAGES | {"ask": f"{camera.answer}#bundle", "event": camera.event}
            for name, path in pages.items():
                height = HEIGHTS.get(name, SCREENS[1280])
                if given.all or name not in NOT_SHOWN:
                    camera.take(given.folder / f"{name}.png", path, height=height)
                    camera.take_sheet(given.folder / f"widths/{name}.png", path)
                for width, theme in ((w, t) for w in SCREENS for t in THEMES if given.all):
                    file = given.folder / f"{name}-{width}-{theme}.png"
                    camera.take(file, path, width=width, theme=theme, whole=True)
        browser.close()


if __name__ == "__main__":
    main()
