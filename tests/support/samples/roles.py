"""Skills made up here with labelled lines, to train roles on."""

from __future__ import annotations

import json
from pathlib import Path

_THINGS = ("tides", "maps", "lamps", "bells", "ropes", "boats")


def write_labelled(folder: Path) -> tuple[Path, Path]:
    """A folder of six small skills, `NAME/SKILL.md`, and a file with the roles of their lines."""
    skills = folder / "skills"
    labels = {}
    for number, thing in enumerate(_THINGS):
        lines = ["---", f"name: {thing}", f"description: All about {thing}", "---"]
        roles = []
        for heading, text, role in _parts(thing, number):
            lines += ["", f"## {heading}", "", *text]
            roles.append([len(lines) - len(text) + 1, len(lines), role])
        path = skills / thing / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        labels[f"made:{thing}"] = roles
    file = folder / "labels.json"
    file.write_text(json.dumps(labels), encoding="utf-8")
    return skills, file


def _parts(thing: str, number: int) -> list[tuple[str, list[str], str]]:
    return [
        ("Overview", [f"What {thing} are good for."], "concept"),
        ("Installation", ["```bash", f"pip install {thing}", "```"], "precondition"),
        ("Steps", [f"1. Open the {thing}", f"2. Sort them by {number}", "3. Save all"], "step"),
        ("Example", ["```python", f"{thing}({number})", "```"], "example"),
        ("Options", [f"- `--{thing}`: how many", "- `--all`: no bound"], "param"),
        (
            "Troubleshooting",
            [f"The {thing} are not found when the path is wrong."],
            "error_handling",
        ),
    ]
