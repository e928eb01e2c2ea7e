"""Compare engines that run the default encoder.

    python -m tests.bench.encoder_engines SKILLS… [--prompts PROMPTS.jsonl] [--skills 2000]
        [--engines openvino-bf16,torch-bf16,…]

SKILLS   folders of skills, each in a folder of its own
PROMPTS  objects with `instruction` and `gt_skill_ids`, whose last part is the name of a folder

Each engine runs in a process of its own, the first of them is the reference. Printed of each, as
JSON: processor seconds from the start of the program until the encoder is loaded and until
a first query is encoded, and the peak of resident memory then; processor milliseconds of a query
(median);
texts of 30, 100 and 250 tokens per second of processor time, one thread, best of 4 rounds; mean and
least cosine with the reference. With PROMPTS: Hit@1 and R@10 of the prompts by cosine of name and
description alone, and the share of first results that are the reference's.

Processor time hardly depends on other work of the machine. The engines of `onnxruntime` need the
packages onnx and onnxruntime, which skillbus does not install: -f32, and -8bit (weights in blocks
of 32, MatMulNBits).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workers.evaluation.predictions import read_jsonl

LENGTHS = {30: 96, 100: 32, 250: 16}
ROUNDS = 4
QUERY = "where do the bikes go after the last train"
DEFAULT_ENGINES = "torch-bf16,openvino-bf16,torch-f32,openvino-f32"


def load(engine: str) -> Any:
    """The default encoder, run by an engine such as `torch-f32`."""
    from config.settings import EncoderSettings

    library, _, precision = engine.partition("-")
    settings = EncoderSettings()
    if library == "torch":
        from search.models import encoder as torch_encoder

        torch_encoder.processor_has_bfloat16 = lambda: precision == "bf16"  # type: ignore[attr-defined]
        return torch_encoder.SentenceTransformerEncoder(settings)
    from search.models import packaged_encoder

    packaged_encoder.processor_has_bfloat16 = lambda: precision == "bf16"  # type: ignore[attr-defined]
    encoder: Any = packaged_encoder.PackagedEncoder(settings)
    if library == "onnxruntime":
        from tests.bench.onnx_graph import OnnxGraph

        encoder._graph = OnnxGraph(precision)
    return encoder


def measure(engine: str, texts: dict[str, list[str]], found: Path) -> dict[str, Any]:
    """Figures of an engine; its vectors are written to `found`."""
    import search.models.load_models  # noqa: F401

    encoder = load(engine)
    loaded = time.process_time()
    encoder.encode_queries([QUERY])
    started = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures: dict[str, Any] = {
        "engine": engine,
        "load_s": round(loaded, 2),
        "first_query_s": round(started, 2),
        "peak_mb": peak // 1024,
    }
    times = []
    for _ in range(30):
        before = time.process_time()
        encoder.encode_queries([QUERY])
        times.append(time.process_time() - before)
    figures["query_ms"] = round(1_000 * float(np.median(times)), 1)
    vectors: dict[str, Any] = {}
    for length, count in LENGTHS.items():
        part = texts[str(length)][:count]
        best = np.inf
        for _ in range(ROUNDS):
            before = time.process_time()
            vectors[str(length)] = encoder.encode_texts(part)
            best = min(best, time.process_time() - before)
        figures[f"texts_{length}"] = round(count / best, 1)
    if texts["prompts"]:
        vectors["prompts"] = encoder.encode_queries(texts["prompts"])
        vectors["skills"] = encoder.encode_texts(texts["skills"])
    np.savez(found, **vectors)
    return figures


def read_texts(folders: Sequence[Path], prompts: Path | None, most: int) -> dict[str, Any]:
    """Texts of about so many tokens, and prompts and skills, with the places of right skills."""
    from config.errors import SkillbusError
    from search.models.packed_weights import PackedWeights, packed_weights_path
    from search.models.unigram import UnigramTokenizer
    from search.skill_analysis import skill_texts
    from skills.parsing.parse_skill import parse_skill

    files = [file for folder in folders for file in sorted(folder.glob("*/SKILL.md"))[:most]]
    names, skills, bodies = [], [], []
    for file in files:
        try:
            content = file.read_bytes()
            skills.append(skill_texts(parse_skill(file.parent.name, content))[0])
        except SkillbusError:
            continue
        names.append(file.parent.name)
        bodies.append(content.decode("utf-8", "replace"))
    asked = []
    if prompts:
        rows = read_jsonl(prompts, ())
        places = {name: place for place, name in enumerate(names)}
        for row in rows:
            right = [
                places[name]
                for one in row.get("gt_skill_ids", ())
                if (name := one.rpartition(":")[2]) in places
            ]
            if right:
                asked.append((row["instruction"], right))
    tokenizer = UnigramTokenizer(PackedWeights(packed_weights_path()).vocabulary)
    return {
        **{str(length): _cut(bodies, length, tokenizer) for length in LENGTHS},
        "prompts": [text for text, _ in asked],
        "right": [right for _, right in asked],
        "skills": skills,
    }


def _cut(bodies: Sequence[str], length: int, tokenizer: Any) -> list[str]:
    """Parts of skills with about so many tokens, of as many skills as are encoded."""
    found: list[str] = []
    for body in bodies:
        part = body[400 : 400 + 5 * length]
        while len(tokenizer.tokenize([part], 4 * length)[0]) > length:
            part = part[: len(part) * 9 // 10]
        if len(tokenizer.tokenize([part], 4 * length)[0]) > 0.7 * length:
            found.append(part)
        if len(found) == LENGTHS[length]:
            return found
    raise SystemExit(f"too few skills have {length} tokens; name larger folders")


def compare(engine: Any, reference: Any, right: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Cosines of an engine's vectors with the reference's, and how both rank."""
    cosines = np.concatenate(
        [(engine[name] * reference[name]).sum(axis=1) for name in engine.files]
    )
    figures: dict[str, Any] = {
        "cosine_mean": round(float(cosines.mean()), 6),
        "cosine_least": round(float(cosines.min()), 6),
    }
    if right:
        orders = [
            np.argsort(-(one["prompts"] @ one["skills"].T), axis=1)[:, :10]
            for one in (engine, reference)
        ]
        ranked = list(zip(orders[0], right, strict=True))
        hits = [bool(set(order[:1]) & set(wanted)) for order, wanted in ranked]
        recalls = [bool(set(order) & set(wanted)) for order, wanted in ranked]
        same = orders[0][:, 0] == orders[1][:, 0]
        figures |= {
            "hit_1": round(float(np.mean(hits)), 4),
            "recall_10": round(float(np.mean(recalls)), 4),
            "same_first": round(float(same.mean()), 4),
        }
    return figures


def main() -> None:
    """Measure every engine in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--skills", type=int, default=2_000, help="of each folder")
    parser.add_argument("--engines", default=DEFAULT_ENGINES)
    chosen = parser.parse_args()
    texts = read_texts(chosen.folders, chosen.prompts, chosen.skills)
    with tempfile.TemporaryDirectory() as made:
        given = Path(made) / "texts.json"
        given.write_text(json.dumps(texts), "utf-8")
        reference = None
        for engine in chosen.engines.split(","):
            found = Path(made) / f"{engine}.npz"
            code = (
                "import json, sys; from pathlib import Path\n"
                "from tests.bench.encoder_engines import measure\n"
                "texts = json.loads(Path(sys.argv[2]).read_text('utf-8'))\n"
                "print(json.dumps(measure(sys.argv[1], texts, Path(sys.argv[3]))))\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", code, engine, given, found],
                env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            figures = json.loads(done.stdout.splitlines()[-1])
            vectors = np.load(found)
            reference = reference or vectors
            print(json.dumps(figures | compare(vectors, reference, texts["right"])), flush=True)


if __name__ == "__main__":
    main()
