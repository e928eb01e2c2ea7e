"""Small made-up skills for tests."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

TOPICS = {
    "kiln-firing": "Fire stoneware in an electric kiln from bisque to glaze",
    "tide-tables": "Read tide tables and plan a crossing of the estuary",
    "bread-baking": "Bake sourdough bread with a rye starter overnight",
    "bee-keeping": "Inspect a bee hive in spring and count varroa mites",
    "bicycle-repair": "True a bicycle wheel and replace a broken spoke",
    "star-charts": "Find constellations with a star chart on a winter night",
    "cheese-ripening": "Ripen a washed rind cheese in a humid cellar",
    "violin-setup": "Fit a violin bridge and set the sound post",
    "garden-frost": "Protect a vegetable garden from late frost",
    "map-projection": "Choose a map projection for a polar expedition",
}


def write_skill(
    root: Path, path: str, description: str = "", body: str = "", **fields: str
) -> Path:
    """Write one skill's SKILL.md below a root, and return its folder."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    name = fields.pop("name", Path(path).name)
    lines = [f"name: {name}", f"description: {description or TOPICS.get(name, name)}"]
    lines += [f"{key}: {value}" for key, value in fields.items()]
    title = name.replace("-", " ")
    text = "---\n" + "\n".join(lines) + f"\n---\n# {title}\n\n"
    text += body or f"## Steps\n\n1. Prepare the {title}.\n2. Check the {title} twice.\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


def write_topics(root: Path) -> Path:
    """Ten skills about ten crafts."""
    for name in TOPICS:
        write_skill(root, name)
    return root


ACTIONS = ("edit", "edit", "edit", "remove", "rename", "add", "break")


class Folder:
    """A folder of skills that changes at random, with dependencies and mentions among them."""

    def __init__(self, root: Path, seed: int, size: int = 40) -> None:
        self.root = root
        self._random = random.Random(seed)
        self._size = size
        self._count = 0
        root.mkdir(parents=True, exist_ok=True)
        while len(self.names()) < size:
            self._write(self._new_name())

    def names(self) -> list[str]:
        """Paths of its skills."""
        return sorted(
            p.parent.relative_to(self.root).as_posix() for p in self.root.rglob("SKILL.md")
        )

    def change(self, count: int = 6) -> None:
        """Edit, remove, rename and add a few skills."""
        for _ in range(count):
            names = self.names()
            name = self._random.choice(names)
            action = self._random.choice(
                ["edit", "edit", "edit", "remove", "rename", "add", "break"]
            )
            if action == "edit":
                self._write(name)
            elif action == "remove" and len(names) > self._size // 2:
                shutil.rmtree(self.root / name)
            elif action == "rename":
                target = self.root / self._new_name()
                target.parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).rename(target)
            elif action == "add":
                self._write(self._new_name())
            elif action == "break":
                (self.root / name / "SKILL.md").write_bytes(b"")

    def _new_name(self) -> str:
        self._count += 1
        topic = self._random.choice(sorted(TOPICS))
        group = self._random.choice(["", "", "home/", "work/tools/"])
        return f"{group}{topic}-{self._count}"

    def _write(self, path: str) -> None:
        topic = Path(path).name.rsplit("-", 1)[0]
        others = [Path(name).name for name in self.names()] or ["nothing-else"]
        first, second, third = (self._random.choice(others) for _ in range(3))
        words = " ".join(self._random.choices(TOPICS[topic].lower().split(), k=12))
        number = self._random.randrange(1000)
        body = (
            f"## Before\n\nRun the `{second}` skill first. {words}.\n\n"
            f'## Steps\n\n1. Prepare {number} parts.\n2. Use the "{third}" skill.\n\n'
            f"## Trouble\n\nIf part {number} cracks, start again.\n"
        )
        folder = write_skill(
            self.root, path, f"{TOPICS[topic]} number {number % 7}", body, depends=first
        )
        if number % 5 == 0:
            (folder / "notes.txt").write_text(f"note {number}\n", encoding="utf-8")
