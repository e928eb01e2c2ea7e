"""A large library made from the examples, for benchmarks on machines that have no other."""

from __future__ import annotations

import random
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "skills"
_SECTION = re.compile(r"(?m)^(?=## )")
_WORD = re.compile(r"\b[a-z]{5,}\b")


def make_library(root: Path, count: int, seed: int = 7) -> None:
    """Write `count` skills: sections of the examples shuffled together, some words renamed."""
    generator = random.Random(seed)
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted(EXAMPLES.glob("*/SKILL.md"))
        if path.stat().st_size > 500
    ]
    sections = [part for text in texts for part in _SECTION.split(text)[1:]]
    words = sorted({word for text in texts for word in _WORD.findall(text)})
    for number in range(count):
        chosen = generator.sample(sections, k=min(len(sections), generator.randint(4, 12)))
        renamed = {word: word + generator.choice("aeiou") for word in generator.sample(words, 60)}
        body = _WORD.sub(lambda match: renamed.get(match[0], match[0]), "\n".join(chosen))  # noqa: B023 - called at once
        name = f"{generator.choice(words)}-{generator.choice(words)}-{number}"
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        about = " ".join(generator.sample(words, 12))
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {about}\n---\n# {name}\n\n{body}", encoding="utf-8"
        )
