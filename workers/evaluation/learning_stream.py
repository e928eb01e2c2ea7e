"""Stream of answered queries and their outcomes, made from labelled prompts, by scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from workers.evaluation.predictions import right_skills

BUNDLE = 5
"""Number of skills of an answer about which outcomes are reported: the first of the ranking."""

POISONED_SKILLS = 20
POISON_SHARE = 0.3
"""Share of the poisoner's outcomes in all outcomes."""

NEW_SKILLS = 0.2
"""Share of the skills of which no prompt is replayed."""

_FIRST_DAY = 20_000
_DAYS = 90
_TOKENS = tuple(f"team-{number}" for number in range(1, 6))
_POISONER = "poisoner"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Conditions of a stream.

    flipped: share of outcomes that say the opposite. by_tokens: several untrusted tokens report,
    instead of the user of this machine. is_poisoned: another token reports that its skills helped
    with other callers' tasks. has_replaced: midway every second skill is replaced by another.
    drifts: the second half has other topics than the first.
    """

    name: str
    flipped: float = 0.0
    by_tokens: bool = False
    is_poisoned: bool = False
    has_replaced: bool = False
    drifts: bool = False


SCENARIOS = (
    Scenario("clean"),
    Scenario("20 % flipped", flipped=0.2),
    Scenario("40 % flipped", flipped=0.4),
    Scenario("tokens", by_tokens=True),
    Scenario("poisoned", by_tokens=True, is_poisoned=True),
    Scenario("replaced", has_replaced=True),
    Scenario("drift", drifts=True),
)


@dataclass(frozen=True, slots=True)
class LabelledTask:
    """A labelled prompt. right: ids of the skills to find."""

    task_id: str
    text: str
    right: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Division of the labelled prompts.

    replayed: in the order of the stream. held_out: of skills that are also replayed. new: of skills
    that are right for no replayed prompt: no honest outcome says that they helped, but they are
    rejected if the answer to a replayed prompt has them.
    """

    replayed: tuple[LabelledTask, ...]
    held_out: tuple[LabelledTask, ...]
    new: tuple[LabelledTask, ...]

    def count(self) -> int:
        """Return how many prompts are in one of the parts."""
        return len(self.replayed) + len(self.held_out) + len(self.new)


def read_tasks(rows: Sequence[dict[str, Any]]) -> list[LabelledTask]:
    """Return the tasks that have skills."""
    return [
        LabelledTask(row["task_id"], row["instruction"], right_skills(row))
        for row in rows
        if row.get("gt_skill_ids")
    ]


def split_tasks(tasks: Sequence[LabelledTask], seed: int, *, drifts: bool = False) -> Split:
    """Choose half of the prompts of each skill to replay, and none of some skills.

    A prompt belongs to the first of its right skills; a prompt with both new and replayed skills is
    in no part. The only prompt of a skill is not replayed, so it counts as one of a new skill.
    drifts: the stream is about half of the skills first, then about the others.
    """
    rng = np.random.default_rng(seed)
    by_skill: defaultdict[str, list[LabelledTask]] = defaultdict(list)
    for task in tasks:
        by_skill[task.right[0]].append(task)
    names = sorted(by_skill)
    skills = [names[place] for place in rng.permutation(len(names)).tolist()]
    count = int(NEW_SKILLS * len(skills))
    new = set(skills[:count])
    stream: list[tuple[float, LabelledTask]] = []
    others = [task for name in skills[:count] for task in by_skill[name]]
    for number, skill_id in enumerate(skills[count:]):
        mine = [task for task in by_skill[skill_id] if new.isdisjoint(task.right)]
        order = [mine[place] for place in rng.permutation(len(mine)).tolist()]
        late = float(drifts and number % 2)
        stream += [(late + float(rng.random()), task) for task in order[: len(mine) // 2]]
        others += order[len(mine) // 2 :]
    stream.sort(key=lambda pair: (pair[0], pair[1].task_id))
    seen = {name for _, task in stream for name in task.right}
    unseen = tuple(one for one in others if seen.isdisjoint(one.right))
    held_out = tuple(
        one for one in others if new.isdisjoint(one.right) and not seen.isdisjoint(one.right)
    )
    return Split(tuple(task for _, task in stream), held_out, unseen)


def answer_of(
    task: LabelledTask, ranked: Sequence[str], place: int, length: int, scenario: Scenario
) -> AnsweredQuery:
    """Return the answered query of a replayed prompt. place: of `length` on the stream."""
    owner = _TOKENS[place % len(_TOKENS)] if scenario.by_tokens else ""
    answered = (_FIRST_DAY + _DAYS * place / max(length, 1)) * SECONDS_PER_DAY
    skills = tuple(AnsweredSkill(name, 1, at) for at, name in enumerate(ranked[:BUNDLE], 1))
    return AnsweredQuery(task.task_id, owner, "", task.text, answered, True, None, skills)


def outcomes_of(
    answer: AnsweredQuery, right: Sequence[str], flipped: float, rng: np.random.Generator
) -> list[Outcome]:
    """Return outcomes of an answer: right skills helped, other skills of the
    answer were rejected."""
    names = [skill.skill_id for skill in answer.skills]
    found = []
    for skill_id in dict.fromkeys([*right, *names]):
        helped = (skill_id in right) != (rng.random() < flipped)
        kind = OutcomeKind.HELPED if helped else OutcomeKind.REJECTED
        place = names.index(skill_id) + 1 if skill_id in names else 0
        found.append(_outcome(answer, skill_id, kind, place, answer.owner))
    return found


def _outcome(
    answer: AnsweredQuery, skill_id: str, kind: OutcomeKind, place: int, owner: str
) -> Outcome:
    reason = "wrong_domain" if kind is OutcomeKind.REJECTED else ""
    key = f"{answer.query_id}-{owner}-{skill_id}"
    return Outcome(
        key, answer.query_id, skill_id, kind, Reporter.VERIFIER, owner, answer.answered, reason,
        place=place,
    )  # fmt: skip


def poison(
    answer: AnsweredQuery, poisoned: Sequence[str], place: int, honest: int
) -> Iterator[tuple[AnsweredQuery, list[Outcome]]]:
    """Yield the poisoner's report for one honest answer: a query of its own with the same task,
    with outcomes that some of its skills helped. They are POISON_SHARE of all outcomes.

    honest: number of the outcomes of the answer.
    """
    count = round(honest * POISON_SHARE / (1 - POISON_SHARE))
    own = AnsweredQuery(
        f"{answer.query_id}-poison", _POISONER, "", answer.task, answer.answered, True
    )
    names = [poisoned[(place * count + at) % len(poisoned)] for at in range(count)]
    yield own, [_outcome(own, name, OutcomeKind.HELPED, 0, _POISONER) for name in names]


def choose_poisoned(skill_ids: Sequence[str], right: set[str], seed: int) -> list[str]:
    """Choose skills that are right for no prompt."""
    others = sorted(set(skill_ids) - right)
    chosen = np.random.default_rng(seed).permutation(len(others))[:POISONED_SKILLS]
    return [others[place] for place in chosen.tolist()]


def find_successors(
    tasks: Sequence[LabelledTask], ranked: dict[str, Sequence[str]]
) -> dict[str, str]:
    """Return the successor of every second skill: the skill that ranks best for its prompts."""
    right = {name for task in tasks for name in task.right}
    gains: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for task in tasks:
        for place, name in enumerate(ranked[task.task_id][:BUNDLE]):
            if name not in right:
                gains[task.right[0]][name] += 1 / (place + 1)
    every_second = sorted(gains)[::2]
    return {
        name: min(gains[name], key=lambda other: (-gains[name][other], other))
        for name in every_second
    }
