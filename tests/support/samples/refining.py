"""A scripted model for the stages of refinement, and small skills to refine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.servers.language_model import Asked

_NUMBER = re.compile(r"^(\d+)\. ", re.MULTILINE)


def give_roles(role: str) -> Any:
    """A script that gives every passage the same role."""

    def script(asked: Asked) -> dict[str, Any]:
        numbers = [int(number) for number in _NUMBER.findall(asked.data)]
        return {"roles": [{"n": number, "role": role} for number in numbers]}

    return script


def write_skill(root: Path, name: str, steps: int = 3, **lines: str) -> Path:
    """A skill with an introduction and some steps; returns its file."""
    body = "\n".join(f"{number}. Turn the {name} {number} times" for number in range(1, steps + 1))
    more = "\n\n".join(lines.values())
    path = root / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"---\nname: {name}\ndescription: Turns a {name} for the harbour\n---\n# {name}\n\n"
        f"What a {name} is for.\n\n## Steps\n\n{body}\n\n{more}\n",
        encoding="utf-8",
    )
    return path


def model_environment(url: str, stages: str = '["roles"]', **settings: str) -> dict[str, str]:
    """Variables that name the scripted model."""
    given = {"base_url": url, "model": "scripted-model", "stages": stages}
    given |= {"query_milliseconds": "60000"} | settings  # also where the machine is busy
    return {f"SKILLBUS_LANGUAGE_MODEL__{name.upper()}": value for name, value in given.items()}
