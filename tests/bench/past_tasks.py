"""Time of recalling past tasks.

usage: python -m tests.bench.past_tasks [TASKS] [SKILLS]

Past tasks are vectors around topics, each with five labels of one of three owners; 100,000 of them
about 12,000 skills by default. Prints milliseconds of processor time, the share of the 32 nearest
tasks that binary codes find.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from search.scoring.cosine_scale import DEFAULT_TASK_SCALE
from search.scoring.memory_evidence import OwnerRules
from search.scoring.past_task_rows import PastTaskRows, TaskWords, to_int8
from search.scoring.task_memory import PastTask, TaskMemory
from skills.outcomes.labels import SkillLabel

DIMENSION, TOPICS, QUERIES, NEAREST = 384, 2_000, 200, 32
LABELS, DAYS = 5, 180


def main(argv: Sequence[str]) -> int:
    """Fill a memory, recall, print."""
    count = int(argv[1]) if len(argv) > 1 else 100_000
    skills = int(argv[2]) if len(argv) > 2 else 12_000
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(TOPICS, DIMENSION))
    vectors = 0.6 * topics[rng.integers(TOPICS, size=count)] + rng.normal(size=(count, DIMENSION))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    memory, rows = TaskMemory(DIMENSION, DEFAULT_TASK_SCALE.cosines), PastTaskRows(DIMENSION)
    started = time.process_time()
    memory.add(_task(number, vectors[number], skills, rng) for number in range(count))
    print(f"add: {(time.process_time() - started) * 1e6 / count:.1f} µs a task")
    for vector in vectors:
        rows.add(to_int8(vector))
    words, spent, found = TaskWords(np.zeros(0, np.uint64), np.zeros(0, np.float32)), [], []
    for place in rng.integers(count, size=QUERIES + 1).tolist():
        query = vectors[place] + 0.03 * rng.normal(size=DIMENSION)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        started = time.process_time()
        memory.recall(words, query, OwnerRules())
        spent.append((time.process_time() - started) * 1000)
        nearest = np.argsort(-(vectors @ query))[:NEAREST]
        compared = rows.find_near_vector(to_int8(query)).rows
        found.append(len(np.intersect1d(nearest, compared)) / NEAREST)
    p50, p95 = np.percentile(spent[1:], [50, 95])  # the first has the codes computed
    print(f"recall: p50 {p50:.2f} ms, p95 {p95:.2f} ms; first {spent[0]:.0f} ms")
    print(f"nearest {NEAREST} found: {np.mean(found):.3f}")
    return 0


def _task(number: int, vector: np.ndarray, skills: int, rng: np.random.Generator) -> PastTask:
    labels = tuple(
        SkillLabel(
            f"lib:{skill}",
            ("", "ann", "bob")[number % 3],
            20_000 + number % DAYS,
            helped=float(not place),
            rejected=float(place > 0),
        )
        for place, skill in enumerate(sorted(rng.integers(skills, size=LABELS).tolist()))
    )
    return PastTask(f"{number:08}", to_int8(vector), labels)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
