"""How many required lines survive when one budget is spent across several skills.

usage: spend_budget.py GOLD.jsonl SKILLS_DIR [GOLD.jsonl SKILLS_DIR ...]

GOLD.jsonl     one object a line: query, skill_id (SOURCE:FOLDER), required ([[first, last], ...])
SKILLS_DIR     holds FOLDER/SKILL.md

Joins queries of different skills to one task, adds skills that are not needed, and gives every
skill a score; those that are needed tend to have the higher ones. Fills bundles as queries do, with
what is in force, with equal parts, with nothing beyond what is enough, and with whole skills.
Prints, for each budget, the share of needed skills with every required line and the mean share of
required lines.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from config.bundle_settings import PassageSettings
from config.errors import UsageError
from config.settings import EncoderSettings
from search.models.load_models import load_encoder
from search.protocol import StoredRevision, Vector
from search.skill_analysis import analyse_skill
from search.text.tokens import term_ids, tokenize
from skills.bundle.model import Bundle
from skills.parsing.parse_skill import parse_skill
from skills.passages import PassageQuery, section_texts
from skills.record import RevisionKey
from tasks.query.assemble import fill_bundle
from tasks.query.choose import ChosenSkill
from tasks.query.select_passages import SkillPassages, select_skill_passages

SHAPES = ((2, 2), (3, 3))
"""Skills that are needed, and others."""

BUDGETS = (2000, 4000, 8000)
DRAWS = 60
SETTINGS = PassageSettings()

Sent = dict[str, set[int]]
"""Lines of each skill."""


class Library:
    """The skills of the queries, with the vectors of their sections."""

    def __init__(self, pairs: list[tuple[Path, Path]]) -> None:
        self.encoder = load_encoder(EncoderSettings())
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.skills: dict[str, tuple[StoredRevision, Vector]] = {}
        for gold, folder in pairs:
            for row in map(json.loads, gold.read_text(encoding="utf-8").splitlines()):
                skill_id = row["skill_id"]
                self.rows.setdefault(skill_id, []).append(row)
                if skill_id not in self.skills:
                    self.skills[skill_id] = self._read(skill_id, folder)

    def _read(self, skill_id: str, folder: Path) -> tuple[StoredRevision, Vector]:
        path = folder / skill_id.partition(":")[2] / "SKILL.md"
        parsed = parse_skill(path.parent.name, path.read_bytes())
        terms = analyse_skill(parsed).passage_terms
        revision = StoredRevision(RevisionKey(skill_id, 1), "f" * 64, parsed, terms, ())
        return revision, self.encoder.encode_texts(section_texts(parsed))

    def query(self, texts: list[str]) -> PassageQuery:
        """One query of several."""
        text = " ".join(texts)
        ids, times = np.unique(term_ids(tokenize(text)), return_counts=True)
        weights = (1 + 0.5 * np.log(times)).astype(np.float32)
        return PassageQuery(self.encoder.encode_queries([text])[0], ids, weights)

    def paged(self, skill_id: str, score: float, query: PassageQuery) -> SkillPassages:
        """What a query wants of a skill."""
        revision, vectors = self.skills[skill_id]
        plan = select_skill_passages(revision, query, vectors, SETTINGS)
        return SkillPassages(ChosenSkill(skill_id, score, ()), revision, skill_id, *plan)


def filled(skills: list[SkillPassages], budget: int) -> Sent:
    """The lines of a bundle that holds what fits."""
    try:
        bundle = Bundle(query_id="q", status="SKILL_HIT", task="t", budget=budget)
        sent = fill_bundle(bundle, skills, [], []).skills
    except UsageError:
        return {}
    return {
        skill.skill_id: {
            line for part in skill.passages for line in range(part.first_line, part.last_line + 1)
        }
        for skill in sent
    }


def in_equal_parts(skills: list[SkillPassages], budget: int) -> Sent:
    """As many bundles of one skill as there are skills."""
    sent: Sent = {}
    for skill in skills:
        sent |= filled([skill], budget // len(skills))
    return sent


def only_enough(skills: list[SkillPassages], budget: int) -> Sent:
    """Without the rest of any skill, however much room there is."""
    return filled(
        [replace(skill, passages=skill.passages[: skill.enough]) for skill in skills], budget
    )


def whole(skills: list[SkillPassages], budget: int) -> Sent:
    """With nothing less than a whole skill counted as enough."""
    return filled(
        [replace(skill, enough=len(skill.passages), sufficiency=1.0) for skill in skills], budget
    )


SCHEMES = {
    "in force": filled,
    "equal parts": in_equal_parts,
    "only enough": only_enough,
    "whole": whole,
}


def measure(library: Library, needed: int, others: int) -> None:
    """Print what each scheme saves of each budget."""
    chance = random.Random(f"{needed} {others}")
    results: dict[tuple[str, int], list[tuple[bool, float]]] = {}
    for _ in range(DRAWS):
        drawn = chance.sample(sorted(library.skills), needed + others)
        rows = {skill_id: chance.choice(library.rows[skill_id]) for skill_id in drawn[:needed]}
        query = library.query([row["query"] for row in rows.values()])
        scores = [chance.uniform(0.5, 1.0) for _ in rows]
        scores += [chance.uniform(0.3, 0.8) for _ in range(others)]
        ranked = sorted(zip(scores, drawn, strict=True), reverse=True)
        skills = [library.paged(skill_id, score, query) for score, skill_id in ranked]
        for name, scheme in SCHEMES.items():
            for budget in BUDGETS:
                sent = scheme(skills, budget)
                for skill_id, row in rows.items():
                    lines = library.skills[skill_id][0].parsed.lines
                    wanted = {
                        number
                        for first, last in row["required"]
                        for number in range(first, last + 1)
                        if lines[number - 1].strip()
                    }
                    share = len(wanted & sent.get(skill_id, set())) / len(wanted)
                    results.setdefault((name, budget), []).append((share == 1, share))
    print(f"{needed} needed, {others} others; sufficient / lines at {BUDGETS} tokens")
    for name in SCHEMES:
        figures = [np.mean(results[name, budget], axis=0) for budget in BUDGETS]
        shown = ", ".join(f"{whole:.3f} / {share:.3f}" for whole, share in figures)
        print(f"  {name:<12} {shown}")


def main(argv: list[str]) -> int:
    """Load, draw, print."""
    if len(argv) < 3 or len(argv) % 2 == 0:
        print(__doc__, file=sys.stderr)
        return 2
    names = [Path(name) for name in argv[1:]]
    library = Library(list(zip(names[::2], names[1::2], strict=True)))
    for needed, others in SHAPES:
        measure(library, needed, others)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
