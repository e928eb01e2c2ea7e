"""Copy skills into many small libraries, as teams have them: whole repositories, drawn at random.

    python -m tests.bench.small_libraries TARGET LABELLED OTHERS

LABELLED, OTHERS  folders of skills with an `index.jsonl`: objects with `repo`, and `dir` or an `id`
                  that ends with the folder; up to half of each library is from LABELLED
TARGET            gets a folder for each library; it must not exist

Sync each folder as a source of its own group, for `tests.bench.fit_probability --libraries`:
`skillbus sync TARGET/s10x0 --source s10x0 --group s10x0 --until searchable`.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from workers.evaluation.predictions import read_jsonl

_SIZES = {10: 12, 40: 10, 150: 5, 600: 2}
"""Number of libraries by number of skills."""

_MOST_LABELLED = 60
_SEED = 11


def read_repositories(folder: Path) -> dict[str, list[Path]]:
    """Folders of skills by repository."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for row in read_jsonl(folder / "index.jsonl", ("repo",)):
        name = row.get("dir") or row["id"].rpartition(":")[2]
        found[row["repo"]].append(folder / name)
    return found


def draw(repositories: Mapping[str, Sequence[Path]], skills: int, by: random.Random) -> list[Path]:
    """Skills of repositories in random order, until there are enough."""
    names = sorted(repositories)
    by.shuffle(names)
    return [skill for name in names for skill in repositories[name]][:skills]


def main() -> None:
    """Copy the skills, and print the libraries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("target", type=Path)
    parser.add_argument("labelled", type=Path)
    parser.add_argument("others", type=Path)
    given = parser.parse_args()
    labelled, others = read_repositories(given.labelled), read_repositories(given.others)
    by = random.Random(_SEED)
    given.target.mkdir(parents=True)
    for size, count in _SIZES.items():
        for number in range(count):
            skills = draw(labelled, min(size // 2, _MOST_LABELLED), by)
            skills += draw(others, size - len(skills), by)
            library = given.target / f"s{size}x{number}"
            for skill in skills:
                shutil.copytree(skill, library / skill.name, symlinks=True)
            print(f"{library}: {len(skills)} skills")


if __name__ == "__main__":
    main()
