"""Writes the prompts that skillbus sends for labelled data, so that a capable model can answer.

    python -m tests.bench.recorded_prompts roles --labels roles.json --folder gt=DIR \\
        --folder community=DIR --out prompts.jsonl [--skills 12] [--skip 12]
    python -m tests.bench.recorded_prompts versions --out tests/data/recorded/prompts.json

`roles` writes one JSON object per line: key, stage, instructions, data, schema. Answers, one JSON
object per line with key and answer, are replayed by `tests.support.program.recorded`. `versions`
notes which prompts the answers belong to, once they are recorded: for each stage the version and
the hash of its instructions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from config.language_model_settings import LanguageModelSettings, ModelStage
from tasks.query.language_model import rewrite, select_prompt
from tasks.refine.judging import judge_prompt
from tasks.refine.linking import prompt as link_prompt
from tasks.refine.roles import role_prompt
from tasks.refine.roles.role_prompt import RolesAnswer, build_batches
from tests.support.program.recorded import Prompt, write_prompts
from workers.training.roles.labels import read_labels, read_skills


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


def describe_prompts() -> dict[ModelStage, dict[str, Any]]:
    """`version` and `instructions`, their SHA-256, of each stage whose answers are recorded."""
    queries = LanguageModelSettings().rewrite_queries
    prompts: dict[ModelStage, tuple[int, str]] = {
        "judge": (judge_prompt.JUDGE_VERSION, judge_prompt.INSTRUCTIONS),
        "links": (link_prompt.VERSION, link_prompt.INSTRUCTIONS),
        "rewrite": (rewrite.VERSION, rewrite.rewrite_request("", queries).instructions),
        "roles": (role_prompt.VERSION, role_prompt.INSTRUCTIONS),
        "select": (select_prompt.VERSION, select_prompt.INSTRUCTIONS),
    }
    return {
        stage: {"version": version, "instructions": hashlib.sha256(text.encode()).hexdigest()}
        for stage, (version, text) in prompts.items()
    }


def main() -> None:
    """Write the prompts, or the versions; print how many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["roles", "versions"])
    parser.add_argument("--labels", type=Path, help="needed by `roles`")
    parser.add_argument("--folder", action="append", default=[], metavar="SOURCE=DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--skills", type=int, default=12)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of them")
    given = parser.parse_args()
    if given.what == "versions":
        described = describe_prompts()
        given.out.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        print(json.dumps({"stages": len(described)}))
        return
    if given.labels is None or not given.folder:
        parser.error("roles needs --labels and --folder")
    folders = {
        source: Path(path) for source, _, path in (one.partition("=") for one in given.folder)
    }
    prompts = list_role_prompts(given.labels, folders, given.skills, given.skip)
    print(json.dumps({"prompts": write_prompts(given.out, prompts)}))


if __name__ == "__main__":
    main()
