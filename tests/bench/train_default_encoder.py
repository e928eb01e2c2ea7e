"""Trains the adapter of the default encoder, and evaluates it on collections that it did not see.

Usage: python -m tests.bench.train_default_encoder HOME OUT --prompts FILE… [--triggers FILE]
       [--tasks FILE] [--exclude PATTERN] [--steps N]

HOME: a library (read only) whose source `community` is trained on. --prompts: JSONL of `skill_id`,
`prompt`, `lang`: prompts written for community skills; those of every third repository are held
out. --triggers and --tasks: labelled prompts and long tasks of other collections, JSONL of
`instruction`, `gt_skill_ids`, `also`, of which nothing is trained. --exclude: a pattern of skill
ids that are left out of training, such as repositories that the trigger prompts come from too.

Texts are name and description; the queries of the evaluation are asked of the skills that they need
and of 2,000 others. An interrupted training resumes. The result is OUT/adapter.safetensors with its
model card OUT/skillbus.json; what is shipped is search/models/skills_adapter.safetensors.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import zlib
from pathlib import Path

from search.local.index import LocalSearchIndex
from search.local.revision_store import read_identity
from search.models.identity import PLAIN_MODEL, trained_languages
from search.protocol import StoredRevision
from search.skill_analysis import skill_texts
from workers.evaluation.predictions import read_jsonl
from workers.training.encoder.encoder_pairs import (
    EncoderOptions,
    EncoderTrainingSet,
    TrainingPair,
)
from workers.training.encoder.encoder_training import (
    evaluate_encoder,
    make_encoder_card,
    train_encoder,
)
from workers.training.encoder.mine_pairs import make_own_pairs
from workers.training.query_origins import LABELLED
from workers.training.trainer import (
    TRAINING_SET_FILE,
    end_training,
    load_training_set,
    save_training_set,
    write_training_card,
)

POOL = 2_000
BATCH = 500


def repository(skill_id: str) -> str:
    """`community:owner__name` of a community skill; other sources have one folder a repository."""
    return "__".join(skill_id.split("__")[:2])


def is_held_out(skill_id: str) -> bool:
    return zlib.crc32(repository(skill_id).encode()) % 3 == 0


def read_skills(home: Path) -> dict[str, StoredRevision]:
    identity = read_identity(home / "index")
    if identity is None:
        sys.exit(f"no library in {home}")
    index = LocalSearchIndex(
        home / "index", identity["model"], int(identity["dimension"]), writable=False
    )
    keys = sorted(index.list_keys())
    found: dict[str, StoredRevision] = {}
    for start in range(0, len(keys), BATCH):
        for key, revision in index.get_revisions(keys[start : start + BATCH]).items():
            found[key.skill_id] = revision
    index.close()
    return found


def build(args: argparse.Namespace) -> EncoderTrainingSet:
    languages = tuple(sorted(trained_languages(PLAIN_MODEL)))
    options = EncoderOptions(
        PLAIN_MODEL,
        languages,
        pairs=4,
        negatives=0,
        rank=args.rank,
        layers=args.layers,
        tokens=args.tokens,
        temperature=0.02,
        learning_rate=4e-4,
        batch_size=args.batch,
    )
    skills = read_skills(args.home)
    made = EncoderTrainingSet(options)
    texts = {name: skill_texts(one.parsed)[0] for name, one in skills.items()}
    trained = [
        name
        for name, one in skills.items()
        if name.startswith("community:")
        and one.parsed.record.language in languages
        and not is_held_out(name)
        and not (args.exclude and re.search(args.exclude, name))
    ]
    prompts = [
        TrainingPair(LABELLED, row["prompt"], (row["skill_id"],))
        for path in args.prompts
        for row in read_jsonl(path, ())
        if row["skill_id"] in texts
    ]
    known = set(trained)
    labelled = [pair for pair in prompts if pair.needed[0] in known]
    own = [pair for name in trained for pair in make_own_pairs(name, skills[name], options)]
    random.Random(0).shuffle(own)
    wanted = args.steps * args.batch
    made.pairs = (labelled * args.repeat + own)[:wanted]
    made.held_out = [
        TrainingPair("written", pair.query, pair.needed)
        for pair in prompts
        if is_held_out(pair.needed[0])
    ]
    for origin, path in (("triggers", args.triggers), ("long tasks", args.tasks)):
        for row in read_jsonl(path, ()) if path else ():
            given = (*(row.get("gt_skill_ids") or ()), *(row.get("also") or ()))
            needed = tuple(name for name in given if name in texts)
            if needed and row.get("gt_skill_ids"):
                kind = origin if origin == "long tasks" else f"{origin} {row.get('lang')}"
                made.held_out.append(TrainingPair(kind, row["instruction"], needed))
    held_out = {name for pair in made.held_out for name in pair.needed}
    made.pool = tuple(sorted(held_out.union(random.Random(1).sample(sorted(texts), POOL))))
    made.texts = {n: texts[n] for n in {*made.pool, *(p.needed[0] for p in made.pairs)}}
    made.repositories = {name: repository(name) for name in held_out}
    made.notes = {"skills trained on": len(trained), "prompts trained on": len(labelled)}
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=Path, nargs="*", default=[])
    parser.add_argument("--triggers", type=Path)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--exclude", default="")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=80)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.out / TRAINING_SET_FILE).exists():
        save_training_set(args.out, build(args))
    made = load_training_set(args.out, EncoderTrainingSet)
    started = time.monotonic()

    def step(done: int, total: int) -> None:
        if done % 10 == 0:
            print(f"{done} of {total} after {time.monotonic() - started:.0f} s", flush=True)

    losses = train_encoder(made, args.out, args.threads, 10, step)
    print("loss", losses[:1], losses[-1:])
    report = evaluate_encoder(made, args.out, step)
    card = make_encoder_card(made, report)
    write_training_card(args.out, card)
    end_training(args.out)
    print(json.dumps(card, indent=1))


if __name__ == "__main__":
    main()
