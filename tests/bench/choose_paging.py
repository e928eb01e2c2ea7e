"""Fit and evaluate the model of which passages a query needs (`skills/passages/needs.json`).

usage: python -m tests.bench.choose_paging [OPTIONS] NAME GOLD.jsonl SKILLS_DIR [NAME ...]

NAME           of a collection; may be given several times
GOLD.jsonl     one object a line: query_id, query, skill_id (SOURCE:FOLDER), required
               ([[first, last], ...])
SKILLS_DIR     holds FOLDER/SKILL.md
--cache        where vectors are kept between runs
--encoder      name or folder of another encoder
--predictions  writes cross-validated/passages.json of `make quality`: the lines of each query by
               setting of `passages.miss`, by weights and a threshold from other skills
--write        fit on everything and write the model into the package

For some token reductions, prints the sufficiency of each collection by method F's margin alone and
by the model: cross-validated by skill, and fitted on the other collections alone. Then what the
setting `passages.miss` gives on skills left out, with bootstrap intervals, and the weights.
The loss is the share of tokens that scores above the least needed passage of a query, through a
sigmoid around KEPT, averaged over queries; a collection counts by the root of its size.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.settings import EncoderSettings
from search.models.load_models import load_encoder
from skills.passages import get_line_ranges
from skills.passages.features import FEATURES
from tests.bench.paging_cases import Case, Vectors, load
from tests.bench.quality.data import MISSES
from workers.evaluation.intervals import bootstrap_interval

MODEL = Path(__file__).resolve().parents[2] / "skills" / "passages" / "needs.json"
REDUCTIONS = (0.60, 0.55, 0.50, 0.40, 0.30)
FOLDS = 8
L2, STEPS, RATE = 0.08, 150, 0.03
KEPT, WIDTH, SOFTNESS = 0.45, 0.15, 0.2
SAMPLED = 2500
QUANTILES = 40

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass
class Fit:
    """Weights of standardised features (the margin's is 1 by definition)."""

    weights: Floats
    mean: Floats
    scale: Floats

    def needs(self, case: Case) -> Floats:
        """The need of each passage."""
        return np.asarray(((case.features - self.mean) / self.scale) @ self.weights)


def fit(cases: Sequence[Case], seed: int = 0) -> Fit:
    """Minimise the loss from the margin on."""
    import torch

    stacked = np.vstack([case.features for case in cases])
    mean, scale = stacked.mean(axis=0), stacked.std(axis=0) + 1e-6
    rows = torch.tensor((stacked - mean) / scale, dtype=torch.float32)
    tokens = np.concatenate([case.tokens for case in cases])
    share = torch.tensor(tokens / tokens.sum(), dtype=torch.float32)
    owner = np.repeat(np.arange(len(cases)), [len(case.needed) for case in cases])
    needed = np.concatenate([case.needed for case in cases])
    places, owners = torch.tensor(np.flatnonzero(needed)), torch.tensor(owner[needed])
    counted = torch.zeros(len(cases)).index_add(0, owners, torch.ones(len(owners))) > 0
    names, members = np.unique([case.collection for case in cases], return_inverse=True)
    sizes = np.bincount(members, minlength=len(names))
    balance = torch.tensor(sizes[members] ** -0.5, dtype=torch.float32)
    moved = torch.zeros(rows.shape[1], requires_grad=True)
    start = torch.zeros(rows.shape[1])
    start[FEATURES.index("margin")] = 1.0
    optimiser = torch.optim.Adam([moved], lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        needs = rows @ (start + moved)
        wanted = needs[places]
        floor = wanted.detach().min()
        total = torch.zeros(len(cases)).index_add(0, owners, torch.exp((floor - wanted) / SOFTNESS))
        least = floor - SOFTNESS * torch.log(total.clamp_min(1e-20))
        sample = torch.randperm(len(needs), generator=generator)[:SAMPLED]
        weight = share[sample] * (len(needs) / len(sample))
        above = torch.sigmoid((needs[sample][None] - least[:, None]) / SOFTNESS)
        kept = (above * weight[None]).sum(dim=1)[counted]
        lost = (torch.sigmoid((kept - KEPT) / WIDTH) * balance[counted]).sum()
        loss = lost / balance[counted].sum() + L2 * (moved * moved).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Fit((start + moved).detach().numpy().astype(float), mean, scale)


def walk(case: Case, needs: Floats) -> tuple[Floats, Floats, Floats]:
    """Thresholds descending; tokens and sufficiency that each adds."""
    order = np.argsort(-needs, kind="stable")
    shown = np.maximum.accumulate(case.shown[order], axis=0)
    sufficient = shown[:, case.required].all(axis=1).astype(float)
    tokens = shown @ case.line_tokens
    return -needs[order], np.diff(tokens, prepend=0.0), np.diff(sufficient, prepend=0.0)


def sufficiencies(cases: Sequence[Case], needs: Sequence[Floats]) -> list[float]:
    """The sufficiency at each of REDUCTIONS, with one threshold for all."""
    walks = [walk(case, need) for case, need in zip(cases, needs, strict=True)]
    keys, tokens, sufficient = (np.concatenate(part) for part in zip(*walks, strict=True))
    order = np.argsort(keys, kind="stable")
    reduction = 1 - tokens[order].cumsum() / sum(case.line_tokens.sum() for case in cases)
    found = sufficient[order].cumsum() / len(cases)
    return [
        float(found[rows[-1]]) if len(rows := np.flatnonzero(reduction >= wanted)) else 0.0
        for wanted in REDUCTIONS
    ]


def left_out(cases: Sequence[Case], parts: Sequence[Ints]) -> list[Floats]:
    """The needs of each part by a fit on the rest."""
    needs: list[Floats] = [np.empty(0)] * len(cases)
    for part in parts:
        held = set(part.tolist())
        model = fit([case for place, case in enumerate(cases) if place not in held])
        for place in part:
            needs[place] = model.needs(cases[place])
    return needs


def by_skill(cases: Sequence[Case]) -> list[Ints]:
    """Folds of whole skills."""
    names = sorted({case.skill for case in cases})
    np.random.default_rng(0).shuffle(names)
    fold = {name: place % FOLDS for place, name in enumerate(names)}
    numbers = np.array([fold[case.skill] for case in cases])
    return [np.flatnonzero(numbers == number) for number in range(FOLDS)]


def by_collection(cases: Sequence[Case]) -> list[Ints]:
    """Whole collections."""
    names = np.array([case.collection for case in cases])
    return [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]


def report(cases: Sequence[Case], label: str) -> list[Floats]:
    """Print the comparison; returns the needs cross-validated by skill."""
    column = FEATURES.index("margin")
    skills = left_out(cases, by_skill(cases))
    collections = by_collection(cases)
    methods: dict[str, list[Floats]] = {
        "margin alone": [case.features[:, column] for case in cases],
        "skills left out": skills,
    }
    if len(collections) > 1:
        methods["collections left out"] = left_out(cases, collections)
    for part in [*collections, np.arange(len(cases))]:
        chosen = [cases[place] for place in part]
        name = chosen[0].collection if len(part) < len(cases) else "all"
        for method, needs in methods.items():
            figures = sufficiencies(chosen, [needs[place] for place in part])
            shown = ", ".join(
                f"{found:.3f} @ {wanted:.2f}"
                for found, wanted in zip(figures, REDUCTIONS, strict=True)
            )
            print(f"{label}, {name} ({len(part)}), {method}: {shown}")
    return skills


def required_needs(cases: Sequence[Case], needs: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Needs of required passages, each query counting the same, and the least one of each query."""
    rng = np.random.default_rng(0)
    drawn, least = [], []
    for case, need in zip(cases, needs, strict=True):
        if case.needed.any():
            drawn.append(rng.choice(need[case.needed], 64))
            least.append(float(need[case.needed].min()))
    return np.concatenate(drawn), np.array(least)


def report_misses(cases: Sequence[Case], needs: Sequence[Floats], label: str) -> None:
    """Print what each value of `passages.miss` gives."""
    missed, _ = required_needs(cases, needs)
    for miss in MISSES:
        limit = float(np.quantile(missed, miss))
        figures: list[str] = []
        for part in [np.arange(len(cases)), *by_collection(cases)]:
            sufficient, kept, full = [], 0.0, 0.0
            for place in part:
                case, need = cases[place], needs[place]
                shown = case.shown[need >= min(limit, float(need.max()))].any(axis=0)
                sufficient.append(float(shown[case.required].all()))
                kept += float(shown @ case.line_tokens)
                full += float(case.line_tokens.sum())
            mean, low, high = bootstrap_interval(sufficient)
            name = case.collection if figures else "all"
            figures.append(f"{name} {mean:.3f} [{low:.3f}, {high:.3f}] @ {1 - kept / full:.3f}")
        print(f"{label}, miss {miss}: " + ", ".join(figures))


Selected = dict[str, dict[str, list[tuple[int, int]]]]


def select_left_out(cases: Sequence[Case], needs: Sequence[Floats]) -> Selected:
    """Line ranges by setting and query. needs: by fits that did not see the skill of the case.

    The threshold of a setting is the quantile over the needs of the other folds.
    """
    found: Selected = {f"{miss:g}": {} for miss in MISSES}
    for part in by_skill(cases):
        held = set(part.tolist())
        others = [place for place in range(len(cases)) if place not in held]
        missed, _ = required_needs([cases[n] for n in others], [needs[n] for n in others])
        for miss in MISSES:
            limit = float(np.quantile(missed, miss))
            for place in part:
                case, need = cases[place], needs[place]
                chosen = np.flatnonzero(need >= min(limit, float(need.max())))
                ranges = get_line_ranges(case.parsed, chosen.tolist())
                found[f"{miss:g}"][case.query_id] = ranges
    return found


def write_predictions(path: Path, by_label: Mapping[str, Selected]) -> None:
    """Write what was selected with section vectors, by words alone where a query has none."""
    with_vectors, words = by_label["vectors"], by_label["words"]
    merged = {miss: rows | with_vectors.get(miss, {}) for miss, rows in words.items()}
    path.write_text(json.dumps(merged) + "\n", encoding="utf-8")


def model_of(cases: Sequence[Case], needs: Sequence[Floats]) -> dict[str, Any]:
    """The model fitted on everything, with thresholds from skills left out."""
    final = fit(cases)
    weights = final.weights / final.scale
    missed, least = required_needs(cases, needs)
    shares = np.linspace(0, 1, QUANTILES + 1)
    return {
        "weights": {
            name: round(float(value), 5) for name, value in zip(FEATURES, weights, strict=True)
        },
        "constant": round(float(-(final.mean * weights).sum()), 5),
        "missed": [round(float(value), 4) for value in np.quantile(missed, shares)],
        "short": [round(float(value), 4) for value in np.quantile(least, shares)],
    }


def triples(values: Sequence[str]) -> Iterator[tuple[str, Path, Path]]:
    """Names, labels and folders."""
    for place in range(0, len(values), 3):
        yield values[place], Path(values[place + 1]), Path(values[place + 2])


def main(argv: list[str], show: Callable[[str], None] = print) -> int:
    """Load, evaluate, write."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--encoder", default="")
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("parts", nargs="+")
    given = parser.parse_args(argv)
    if len(given.parts) % 3:
        parser.error("each collection has a NAME, GOLD.jsonl and SKILLS_DIR")
    import torch

    torch.set_num_threads(1)
    settings = EncoderSettings(model=given.encoder) if given.encoder else EncoderSettings()
    encoder = load_encoder(settings)
    vectors = Vectors(encoder, given.cache)
    loaded = load(list(triples(given.parts)), vectors)
    vectors.save()
    models, selected = {}, {}
    for label, cases in loaded.items():
        needs = report(cases, label)
        report_misses(cases, needs, label)
        selected[label] = select_left_out(cases, needs)
        models[label] = model_of(cases, needs)
        weights = sorted(models[label]["weights"].items(), key=lambda pair: -abs(pair[1]))
        show(f"{label}: " + ", ".join(f"{name} {value:.3f}" for name, value in weights))
    if given.predictions:
        write_predictions(given.predictions, selected)
    if given.write:
        MODEL.write_text(json.dumps(models, indent=1) + "\n", encoding="utf-8")
        show(f"wrote {MODEL}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
