"""Fit the probabilities that ranked skills are right, and say how well calibrated they are.

usage: python -m tests.bench.fit_probability HOME LABELS.jsonl ... [--elsewhere SOURCE]
           [--libraries HOME] [--general PROMPTS.txt] [--cases FILE] [--out FILE]
           [--repositories INDEX.jsonl] [--origin TEXT] [--predictions FILE]

HOME         a library, searchable; with skill vectors, and embedded if queries will find it so
LABELS       one object a line: task_id, instruction and gt_skill_ids (also: right too), or
             query_id, query and skill_id, or skill_id and prompt; near misses have not_skill_ids
             (and owner, the skill that is right), or skill_id and the style near_miss
--elsewhere  a source: long tasks whose skills are of other sources are asked of it alone too
--libraries  small libraries: each source one of its own, seen by the group of its name only
             (`tests.bench.small_libraries`); prompts are asked of each, with their skills and
             without
--general    prompts about no skill, one a line (tests/bench/general_prompts.txt)
--repositories  objects with id and repo, for skills whose id does not tell it
--cases      keeps what was asked, so that a change of the fit takes seconds
--predictions  writes cross-validated/probabilities.json of `make quality`: of the first skill of
             each prompt, by weights fitted without the repository of its skill
--out        writes the weights: search/scoring/probability_weights.json

Every prompt that has its skills is asked once more without them and their copies. Prints, for
prompts whose repository was left out of the fit and for those whose whole collection was: the
expected calibration error of the first skill's probability with a bootstrap interval, how many
tasks without their skills are below the threshold that refuses 3 in 100 of those with them, and the
least probability to set. Run it again whenever the ranking or the encoder changes; it takes three
minutes, the second time with --cases ten seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search.scoring.probability import (
    FEATURES,
    HEADS,
    WITHIN,
    ProbabilityModel,
    feature_names,
)
from tests.bench.probability_cases import (
    ABSENT,
    GENERAL,
    NEAR,
    PRESENT,
    REMOVED,
    Case,
    find_repository,
    read_cases,
    read_repositories,
)
from workers.evaluation.metrics import calibration_error, reliability_bins

Floats = npt.NDArray[np.float64]
REMOVED_SHORT, ABSENT_SHORT, GENERAL_SHORT, WITHOUT_LONG = 0.03, 0.1, 0.1, 0.35
"""Weights of the cases without a right skill, as shares of those with one. Low for short prompts
whose skills were removed from the large library, where another skill often does as well."""
SHARE_LONG = 0.1
"""Weight of the long tasks as a share of all. With .25 tasks of middle length are judged by what
nineteen long ones have in common."""
UNKNOWN_WEIGHT = 0.3
"""Weight of a near miss where a skill comes first that its author did not name: mostly wrong."""
RIDGE = 20.0
FOLDS = 10
REFUSED = 0.03
THRESHOLDS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
SAMPLES = 400


def weigh(cases: Sequence[Case]) -> Floats:
    """The weight of each case: long tasks SHARE_LONG of all, and those without a right skill the
    share of those with one that the constants above name."""
    weights = np.ones(len(cases))
    weights[[case.kind == NEAR and not case.judged for case in cases]] = UNKNOWN_WEIGHT
    long = np.array([case.long for case in cases])
    kinds = np.array([case.kind for case in cases])
    known = np.isin(kinds, (PRESENT, NEAR))
    parts = [(long & ~known, long & known, WITHOUT_LONG)]
    for kind, part in (
        (REMOVED, REMOVED_SHORT),
        (ABSENT, ABSENT_SHORT),
        (GENERAL, GENERAL_SHORT),
    ):
        parts.append((~long & (kinds == kind), ~long & known, part))
    for without, present, part in parts:
        if without.any():
            share = part * weights[present].sum()
            weights[without] *= share / weights[without].sum()
    if long.any() and not long.all():
        share = SHARE_LONG / (1 - SHARE_LONG) * weights[~long].sum()
        weights[long] *= share / weights[long].sum()
    return weights


def make_samples(cases: Sequence[Case], head: str) -> tuple[Floats, Floats, Floats]:
    """Features, labels and weights for one of the models."""
    features: list[Floats] = []
    labels: list[bool] = []
    weights: list[float] = []
    for case, weight in zip(cases, weigh(cases).tolist(), strict=True):
        rows = case.features
        if head == "further":
            features.append(rows[1:])
            labels += case.right[1:]
            weights += [weight] * (len(rows) - 1)
        else:
            features.append(rows[:1])
            labels.append(any(case.right[:WITHIN]) if head == "library" else case.right[0])
            weights.append(weight)
    return np.concatenate(features), np.array(labels, dtype=np.float64), np.array(weights)


def fit_head(cases: Sequence[Case], head: str) -> dict[str, float]:
    """Weights by feature: logistic loss with a ridge over standardised features, the weights of
    what speaks for a candidate at least 0."""
    from scipy.optimize import minimize

    rows, labels, weights = make_samples(cases, head)
    spread = rows.std(axis=0)
    spread[spread < 1e-9] = 1.0
    scaled = rows / spread
    names = feature_names()
    free = [not name.startswith(FEATURES) for name in names]
    penalised = np.array([not name.startswith("bias") for name in names], dtype=np.float64)

    def loss(values: Floats) -> tuple[float, Floats]:
        score = scaled @ values
        chance = 1.0 / (1.0 + np.exp(-np.clip(score, -30, 30)))
        lost = np.logaddexp(0.0, score) - labels * score
        gradient = scaled.T @ (weights * (chance - labels)) + RIDGE * penalised * values
        ridge = 0.5 * RIDGE * float((penalised * values) @ values)
        return float(weights @ lost) + ridge, gradient

    bounds = [(None, None) if one else (0.0, None) for one in free]
    found = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B", bounds=bounds)
    return {
        name: round(float(value), 5)
        for name, value in zip(names, found.x / spread, strict=True)
        if abs(value) > 1e-6
    }


def fit(cases: Sequence[Case]) -> dict[str, Any]:
    """The weights of all three models."""
    return {"format": 1, "weights": {head: fit_head(cases, head) for head in HEADS}}


def predict_left_out(cases: Sequence[Case], groups: Sequence[int]) -> list[tuple[Floats, float]]:
    """Probabilities of each case by models that did not see its group."""
    predicted: list[tuple[Floats, float] | None] = [None] * len(cases)
    for group in sorted(set(groups)):
        seen = [case for case, own in zip(cases, groups, strict=True) if own != group]
        model = ProbabilityModel(fit(seen))
        for place, (case, own) in enumerate(zip(cases, groups, strict=True)):
            if own == group:
                found = model.estimate(case.evidence)
                predicted[place] = found.skills, found.library
    return [one for one in predicted if one is not None]


def bootstrap(measure: Callable[[npt.NDArray[np.intp]], float], count: int) -> str:
    """A measure over cases drawn with replacement: its 95 % interval, as text."""
    generator = np.random.default_rng(1)
    draws = [measure(generator.integers(0, count, count)) for _ in range(SAMPLES)]
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"[{low:.3f}, {high:.3f}]"


def report_calibration(
    name: str, cases: Sequence[Case], predicted: Sequence[tuple[Floats, float]]
) -> None:
    """Print the calibration error of the first skill over the prompts that are judged."""
    scopes: dict[str, list[int]] = {"all": []}
    for place, case in enumerate(cases):
        if case.judged and case.kind in (PRESENT, NEAR):
            scopes["all"].append(place)
            if case.kind == PRESENT:
                scopes.setdefault(f"{case.collection}{' long' if case.long else ''}", []).append(
                    place
                )
    for scope, places in scopes.items():
        chance = np.array([predicted[place][0][0] for place in places])
        right = np.array([cases[place].right[0] for place in places])

        def error(drawn: npt.NDArray[np.intp], p: Floats = chance, y: Any = right) -> float:
            return calibration_error(reliability_bins(list(p[drawn]), list(y[drawn])))

        everything = np.arange(len(places))
        print(
            f"  {name}: {scope}: {len(places)} prompts, right {right.mean():.3f}, predicted "
            f"{chance.mean():.3f}, calibration error {error(everything):.3f} "
            f"{bootstrap(error, len(places))}"
        )
        if scope == "all":
            for one in reliability_bins(list(chance), list(right)):
                print(f"      {one.predicted:.2f} predicted, {one.observed:.2f} right, {one.count}")


def report_refusals(
    name: str, cases: Sequence[Case], predicted: Sequence[tuple[Floats, float]]
) -> None:
    """Print which share of tasks without their skills is refused, by length."""
    chance = np.array([library for _, library in predicted])
    for long in (True, False):
        mine = {
            kind: np.array([c.kind == kind and c.long == long for c in cases])
            for kind in (PRESENT, NEAR, REMOVED, ABSENT, GENERAL)
        }
        with_them = np.sort(chance[mine[PRESENT]])
        if not len(with_them):
            continue
        threshold = with_them[int(REFUSED * len(with_them))]
        found = ", ".join(
            f"{kind} {np.mean(chance[mine[kind]] < threshold):.3f} of {mine[kind].sum()}"
            for kind in (NEAR, REMOVED, ABSENT, GENERAL)
            if mine[kind].any()
        )
        length = "long tasks" if long else "short prompts"
        print(f"  {name}: {length}: refused below {threshold:.3f}: {found}")


def report_thresholds(
    name: str, cases: Sequence[Case], predicted: Sequence[tuple[Floats, float]]
) -> None:
    """Print by collection what each least probability refuses, with the skills and without."""
    collections = sorted({case.collection for case in cases if case.kind == PRESENT})
    for collection in collections:
        line = []
        for least in THRESHOLDS:
            shares = []
            for kind in (PRESENT, NEAR, REMOVED, ABSENT, GENERAL):
                found = [
                    library < least
                    for case, (_, library) in zip(cases, predicted, strict=True)
                    if case.kind == kind and (kind == GENERAL or case.collection == collection)
                ]
                shares.append(f"{np.mean(found):.2f}" if found else "-")
            line.append(f"{least:.2f}: {'/'.join(shares)}")
        kinds = "present/near/removed/absent/general"
        print(f"  {name}: {collection}: refused below ({kinds}) {'  '.join(line)}")


def report_further(cases: Sequence[Case], predicted: Sequence[tuple[Floats, float]]) -> None:
    """Print what the least probability of further skills costs and saves in the large library."""
    present = [n for n, case in enumerate(cases) if case.kind == PRESENT and not case.library]
    for least in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3):
        line = f"  further from {least:.2f}:"
        for long in (True, False):
            sizes, held = [], []
            for place in present:
                case, chance = cases[place], predicted[place][0][:WITHIN]
                if case.long != long:
                    continue
                taken = (chance >= least) | (np.arange(len(chance)) == 0)
                right = np.array(case.right[:WITHIN])
                sizes.append(int(taken.sum()))
                held.append(float((right & taken).sum() / max(right.sum(), 1)))
            if sizes:
                length = "long" if long else "short"
                line += (
                    f" {length}: {np.mean(sizes):.1f} skills, hold {np.mean(held):.3f} of the right"
                )
        print(line)


def write_predictions(
    path: Path,
    cases: Sequence[Case],
    predicted: Sequence[tuple[Floats, float]],
    owners: Sequence[str],
) -> None:
    """Write the first skill's probability for each judged prompt with an id."""
    rows = [
        {
            "task_id": case.prompt,
            "probability": round(float(skills[0]), 5),
            "right": bool(case.right[0]),
            "group": owner,
        }
        for case, (skills, _), owner in zip(cases, predicted, owners, strict=True)
        if case.prompt and case.judged and case.kind in (PRESENT, NEAR) and not case.library
    ]
    path.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    """Ask, fit, report, write."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("labels", type=Path, nargs="+")
    parser.add_argument("--elsewhere", default="")
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--general", type=Path)
    parser.add_argument("--repositories", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--origin", default="")
    parser.add_argument("--predictions", type=Path)
    options = parser.parse_args(argv)
    cases = read_cases(
        options.home,
        options.labels,
        options.elsewhere,
        options.cases,
        options.libraries,
        options.general,
    )
    known = read_repositories(options.repositories)
    owners = [known.get(case.skill_id) or find_repository(case.skill_id) for case in cases]
    repositories = sorted(set(owners))
    folds = [repositories.index(owner) % FOLDS for owner in owners]
    collections = sorted({case.collection for case in cases})
    left_out = [collections.index(case.collection) for case in cases]
    by_repository = predict_left_out(cases, folds)
    predictions = {"repository left out": by_repository}
    if len(collections) > 1:
        predictions["collection left out"] = predict_left_out(cases, left_out)
    for name, predicted in predictions.items():
        for size, small in (("large library", False), ("small libraries", True)):
            places = [place for place, case in enumerate(cases) if bool(case.library) is small]
            if places:
                some = [cases[place] for place in places]
                found = [predicted[place] for place in places]
                report_calibration(f"{name}: {size}", some, found)
                report_refusals(f"{name}: {size}", some, found)
                report_thresholds(f"{name}: {size}", some, found)
    report_further(cases, by_repository)
    if options.predictions:
        write_predictions(options.predictions, cases, by_repository, owners)
    card = {
        "model": "probability that ranked skills are right, logistic regression",
        "command": "tests/bench/fit_probability.py",
        "origin": options.origin,
        "cases": Counter(case.kind for case in cases),
    } | fit(cases)
    print(json.dumps(card["weights"], indent=1))
    if options.out:
        options.out.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
