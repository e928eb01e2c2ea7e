"""Writes the prompts of the links stage, so that a capable model can answer them.

    python -m tests.bench.recorded_links --home HOME --folder gt=DIR --folder community=DIR \\
        --out links.jsonl [--labels tests/data/links.jsonl --count 100] [--skills 40]

First the prompts of `--count` labelled pairs, then those of `--skills` skills of the library in
HOME, the ones with the most candidates that are named or share files; each pair is asked once.
Answers are replayed by `tests.support.program.recorded`, and are judged
in `tests/integration/quality/test_recorded_links.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from config.settings import Settings
from search.protocol import StoredRevision
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from skills.token_count import count_tokens
from tasks.language_model.skill_pairs.protocol import order_pair
from tasks.refine.linking.candidates import find_candidates, read_skill_text
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.prompt import LinkPrompt, LinksAnswer, build_prompt
from tasks.services import Services
from tests.support.program.recorded import Prompt, write_prompts
from workers.backend.stores import open_services
from workers.evaluation.predictions import read_jsonl

SHARES = {"dependency": 0.4, "semantic": 0.25, "alternative": 0.2, "workflow": 0.15}
"""Shares of the types among the labelled pairs that are asked."""


def choose_labels(rows: Iterable[Mapping[str, str]], count: int) -> list[Mapping[str, str]]:
    """`count` labelled pairs by the hash of their ends, in the shares of their types.

    A pair whose label rests on the text of a third skill is left out.
    """
    by_type = defaultdict(list)
    for row in rows:
        if row.get("owner", row["source"]) in (row["source"], row["target"]):
            by_type[row["type"]].append(row)
    chosen: list[Mapping[str, str]] = []
    for kind, share in SHARES.items():
        chosen += sorted(by_type[kind], key=_hash)[: round(share * count)]
    return chosen


def build_labelled_prompts(
    rows: Iterable[Mapping[str, str]], skills: Mapping[str, SkillText]
) -> list[LinkPrompt]:
    """One prompt for each skill whose text a label rests on, about its labelled pairs."""
    asked: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        owner = row.get("owner", row["source"])
        other = row["target"] if owner == row["source"] else row["source"]
        if other not in asked[owner]:
            asked[owner].append(other)
    return [
        build_prompt(skills[owner], [skills[other] for other in sorted(others)])
        for owner, others in sorted(asked.items())
    ]


def read_skill_texts(wanted: Iterable[str], folders: Mapping[str, Path]) -> dict[str, SkillText]:
    """The wanted skills that are in these folders."""
    found: dict[str, SkillText] = {}
    ids = set(wanted)
    for source_id, place in folders.items():
        paths = {one.partition(":")[2] for one in ids if one.startswith(f"{source_id}:")}
        for path in sorted(paths):
            content = (place / path / "SKILL.md").read_bytes()
            skill_id = f"{source_id}:{path}"
            content_hash = hashlib.sha256(content).hexdigest()
            parsed = parse_skill(path, content)
            found[skill_id] = SkillText.from_parsed(skill_id, content_hash, parsed)
    return found


def choose_skills(services: Services, count: int) -> list[StoredRevision]:
    """The skills with the most candidates that are named or share files, in that order."""
    entries = [one for one in services.graph.get_entries() if one.seq]
    revisions = services.index.get_revisions([RevisionKey(e.skill_id, e.seq) for e in entries])
    texts = {key: read_skill_text(revision) for key, revision in revisions.items()}
    limit = services.settings.language_model.link_candidates
    pointed = {
        key: sum(
            _is_pointed_at(texts[key], texts[other.key])
            for other in find_candidates(services, revision, limit)
        )
        for key, revision in revisions.items()
    }
    chosen = sorted(revisions, key=lambda key: (-pointed[key], key.skill_id))[:count]
    return [revisions[key] for key in chosen]


def build_library_prompts(services: Services, count: int) -> list[LinkPrompt]:
    """The prompts of these skills, each pair in the first that has it."""
    limit = services.settings.language_model.link_candidates
    prompts, asked = [], set[tuple[str, str]]()
    for revision in choose_skills(services, count):
        skill = read_skill_text(revision)
        pool = [read_skill_text(one) for one in find_candidates(services, revision, limit)]
        pairs = {order_pair(skill.content_hash, one.content_hash): one for one in pool}
        unasked = [one for pair, one in pairs.items() if pair not in asked]
        asked |= pairs.keys()
        if unasked:
            prompts.append(build_prompt(skill, unasked))
    return prompts


def _is_pointed_at(skill: SkillText, other: SkillText) -> bool:
    lines = " ".join(line.text.casefold() for line in skill.lines)
    return bool(skill.files & other.files) or other.name.casefold() in lines


def _hash(row: Mapping[str, str]) -> str:
    return hashlib.sha256(f"{row['source']} {row['target']}".encode()).hexdigest()


def _ignore(name: str, ids: Sequence[object]) -> None:
    del name, ids


def main() -> None:
    """Write the prompts; print how many, and their tokens."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--folder", action="append", default=[], metavar="SOURCE=DIR")
    parser.add_argument("--labels", type=Path, default=Path("tests/data/links.jsonl"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--skills", type=int, default=40)
    given = parser.parse_args()
    folders = {name: Path(path) for name, _, path in (one.partition("=") for one in given.folder)}
    rows = choose_labels(read_jsonl(given.labels, ("source", "target")), given.count)
    ends = {row[end] for row in rows for end in ("source", "target")}
    labelled = build_labelled_prompts(rows, read_skill_texts(ends, folders))
    with contextlib.ExitStack() as stack:
        services = open_services(Settings(home=given.home), stack, _ignore, writable=False)
        library = build_library_prompts(services, given.skills)
    prompts = [*labelled, *library]
    written = write_prompts(given.out, [Prompt(one.request, LinksAnswer) for one in prompts])
    tokens = [count_tokens(one.request.instructions + one.request.data) for one in prompts]
    report = {
        "prompts": written,
        "labelled": {"prompts": len(labelled), "tokens": sum(tokens[: len(labelled)])},
        "library": {"prompts": len(library), "tokens": sum(tokens[len(labelled) :])},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
