"""Writes the prompts that skillbus sends for labelled data, so that a capable model can answer.

    python -m tests.bench.recorded_prompts roles --labels roles.json --folder gt=DIR \\
        --folder community=DIR --out prompts.jsonl [--skills 12] [--skip 12]

One JSON object per line: key, stage, instructions, data, schema. Answers, one JSON object per line
with key and answer, are replayed by `tests.support.program.recorded`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.refine.roles.role_prompt import RolesAnswer, build_batches
from tests.support.program.recorded import Prompt, write_prompts
from workers.training.labels import read_labels, read_skills


def choose_by_hash(
    skill_ids: Sequence[str], count: int, first_source: str, skip: int = 0
) -> list[str]:
    """`count` skills in the order of their hashes: half of one source, half of all others.

    skip: how many to leave out first, such as those that a prompt was written with.
    """

    def by_hash(ids: Sequence[str]) -> list[str]:
        return sorted(ids, key=lambda skill_id: hashlib.sha256(skill_id.encode()).hexdigest())

    first = by_hash([one for one in skill_ids if one.partition(":")[0] == first_source])
    others = by_hash([one for one in skill_ids if one.partition(":")[0] != first_source])
    chosen = first[skip // 2 :][: count // 2]
    return chosen + others[skip - skip // 2 :][: count - len(chosen)]


def list_role_prompts(
    labels: Path, folders: dict[str, Path], count: int, skip: int
) -> Iterator[Prompt]:
    """The prompts of the roles stage for `count` of the labelled skills."""
    skill_ids = choose_by_hash(list(read_labels([labels])), count, next(iter(folders)), skip)
    for parsed in read_skills(skill_ids, folders).values():
        for batch in build_batches(parsed):
            yield Prompt(batch.request, RolesAnswer)


def main() -> None:
    """Write the prompts; print how many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stage", choices=["roles"])
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--folder", action="append", required=True, metavar="SOURCE=DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--skills", type=int, default=12)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of them")
    given = parser.parse_args()
    folders = {
        source: Path(path) for source, _, path in (one.partition("=") for one in given.folder)
    }
    prompts = list_role_prompts(given.labels, folders, given.skills, given.skip)
    print(json.dumps({"prompts": write_prompts(given.out, prompts)}))


if __name__ == "__main__":
    main()
