"""Training of the role classifier on labelled lines, evaluated by cross-validation over skills.

A passage is weighted by the square root of its lines, so that long blocks do not dominate, and a
role by the inverse square root of its share, so that rare roles are learned. Regularisation and the
weight of the rules are chosen by cross-validation over skills (nested in the evaluation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import UsageError
from search.models.installed import check_installed
from skills.record import ParsedSkill, Role
from skills.roles.classifier import ROLES, Probabilities, RoleClassifier, blend_probabilities
from skills.roles.features import FEATURE_COUNT, Features, extract_features
from skills.roles.passage_context import PassageContext, build_passage_contexts
from skills.roles.rules import RolePrediction, classify_by_rules
from workers.evaluation.metrics import accuracy_and_macro_f1
from workers.evaluation.predictions import last_line_before_next

REGULARISATIONS = (0.02, 0.05, 0.3)
"""Inverse regularisation strengths to choose from (scikit-learn's C), the strongest first."""

TOLERANCE = 0.01
"""Share of the score given up for stronger regularisation, which carries to other collections.

As in the one-standard-error rule: Breiman et al., Classification and Regression Trees, §3.4.3.
"""

RULES_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Weights of the rules to choose from; from 0.5 on, a rule that applies decides alone."""

FOLDS = 10
"""Folds of the evaluation and of the final choice; fewer skills are left out one by one.

A fold holds skills that follow each other in the order of ids: those of one repository are mostly
left out together.
"""

INNER_FOLDS = 4
"""Folds of the choice within each fold of the evaluation."""

MIN_SKILLS = 3

_MAX_ITERATIONS = 500
_ABSENT_ROLE_INTERCEPT = -30.0
"""Intercept of a role without labels: gives probability 0 without an infinity in the file."""

Ranges = Sequence[tuple[int, int, str]]
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled skill: its passages with rule predictions and features.

    counts: (passages, 6), the lines of each passage by labelled role.
    """

    skill_id: str
    blocks: list[PassageContext]
    predictions: list[RolePrediction]
    features: Features
    counts: Counts


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Chosen by cross-validation: scikit-learn's C and the weight of the rules."""

    regularisation: float
    rules_share: float


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A classifier, its hyperparameters and its evaluation on skills that were left out.

    confusions: lines by labelled and predicted role, (6, 6), of `all`, of the `rules` only and of
    the `features` only. per_skill: accuracy by skill id. predicted: the role of each passage by
    skill id, by the classifier that was trained without the skill.
    """

    classifier: RoleClassifier
    hyperparameters: Hyperparameters
    confusions: dict[str, Counts]
    per_skill: dict[str, float]
    predicted: dict[str, list[Role]]


def make_example(skill_id: str, parsed: ParsedSkill, ranges: Ranges) -> Example:
    """Return an example from the labelled line ranges of a skill; lines with
    other labels are ignored.

    Raises UsageError for a range outside the file.
    """
    roles = {role.value: place for place, role in enumerate(ROLES)}
    labels: dict[int, int] = {}
    for first, last, role in ranges:
        if not 1 <= first <= last <= len(parsed.lines):
            raise UsageError(
                f"{skill_id}: lines {first} to {last} are labelled, the file has "
                f"{len(parsed.lines)}; the labels do not match this file"
            )
        if role in roles:
            labels |= dict.fromkeys(range(first, last + 1), roles[role])
    counts = np.zeros((len(parsed.passages), len(ROLES)))
    for passage in parsed.passages:
        for line in range(passage.first_line, last_line_before_next(parsed, passage.index) + 1):
            if line in labels:
                counts[passage.index, labels[line]] += 1
    blocks = build_passage_contexts(parsed.lines, parsed.sections, parsed.passages)
    return Example(skill_id, blocks, classify_by_rules(blocks), extract_features(blocks), counts)


def train_roles(
    examples: Sequence[Example], progress: Callable[[int, int], None]
) -> TrainingResult:
    """Evaluate on skills left out, then choose hyperparameters and fit on all examples.

    progress: called with the number of fits done and their total. Raises UsageError for fewer than
    MIN_SKILLS labelled skills or a single role.
    """
    check_installed("sklearn", "scipy", purpose="training of roles")
    ordered = sorted(examples, key=lambda example: example.skill_id)
    kept = [example for example in ordered if example.counts.any()]
    if len(kept) < MIN_SKILLS:
        raise UsageError(
            f"label lines of at least {MIN_SKILLS} skills, so that each can be left out of the "
            f"training; {len(kept)} have labels"
        )
    if np.count_nonzero(sum(example.counts.sum(axis=0) for example in kept)) < 2:
        raise UsageError("all labelled lines have one role; label lines of at least two")
    groups = split_folds(kept, FOLDS)
    inner = min(INNER_FOLDS, len(kept) - len(max(groups, key=len)))
    rounds = len(groups) * (inner * len(REGULARISATIONS) + 1)
    fits = _FitCounter(progress, rounds + len(groups) * len(REGULARISATIONS) + 1)
    confusions = {name: np.zeros((len(ROLES), len(ROLES))) for name in ("all", "rules", "features")}
    per_skill: dict[str, float] = {}
    predicted: dict[str, list[Role]] = {}
    for group in groups:
        rest = _without(kept, group)
        chosen = select_hyperparameters(rest, inner, fits)
        model = fits.fit(rest, chosen)
        for held in group:
            given = model.predict_probabilities(held.blocks)
            for name, share in (("all", chosen.rules_share), ("rules", 1.0), ("features", 0.0)):
                confusion = confusion_matrix(held, given, share)
                confusions[name] += confusion
                if name == "all":
                    per_skill[held.skill_id] = float(np.trace(confusion) / confusion.sum())
                    places = predict_places(held, given, share)
                    predicted[held.skill_id] = [ROLES[place] for place in places]
    chosen = select_hyperparameters(kept, FOLDS, fits)
    return TrainingResult(fits.fit(kept, chosen), chosen, confusions, per_skill, predicted)


def select_hyperparameters(
    examples: Sequence[Example], folds: int, fits: _FitCounter
) -> Hyperparameters:
    """Choose the hyperparameters by the mean of accuracy and macro-F1 in cross-validation.

    The result is the strongest regularisation within TOLERANCE of the best, with its best weight of
    the rules, the first of equals. folds: maximum number of groups into which the skills are split.
    """
    groups = split_folds(examples, folds)
    scores: dict[Hyperparameters, float] = {}
    for regularisation in REGULARISATIONS:
        confusions = {share: np.zeros((len(ROLES), len(ROLES))) for share in RULES_SHARES}
        for group in groups:
            model = fits.fit(_without(examples, group), Hyperparameters(regularisation, 0.0))
            for held in group:
                given = model.predict_probabilities(held.blocks)
                for share in RULES_SHARES:
                    confusions[share] += confusion_matrix(held, given, share)
        for share, confusion in confusions.items():
            candidate = Hyperparameters(regularisation, share)
            scores[candidate] = sum(accuracy_and_macro_f1(confusion)) / 2
    least = max(scores.values()) - TOLERANCE
    strongest = min(one.regularisation for one, score in scores.items() if score >= least)
    of_it = [one for one in scores if one.regularisation == strongest]
    return max(of_it, key=lambda candidate: scores[candidate])


def split_folds(examples: Sequence[Example], folds: int) -> list[Sequence[Example]]:
    """Return at most `folds` groups of neighbouring examples, whose sizes differ by at most one."""
    count = min(folds, len(examples))
    ends = [len(examples) * number // count for number in range(count + 1)]
    return [examples[start:end] for start, end in pairwise(ends)]


def _without(examples: Sequence[Example], group: Sequence[Example]) -> list[Example]:
    return [example for example in examples if all(example is not one for one in group)]


class _FitCounter:
    """Fits classifiers and reports progress."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def fit(self, examples: Sequence[Example], hyperparameters: Hyperparameters) -> RoleClassifier:
        """Fit a classifier and report one more fit as done."""
        self._done += 1
        self._progress(self._done, self._total)
        return fit(examples, hyperparameters)


def fit(examples: Sequence[Example], hyperparameters: Hyperparameters) -> RoleClassifier:
    """Fit a multinomial logistic regression, with a row per passage and labelled role.

    Roles without examples get probability 0. With a single role, that role is always predicted.
    """
    from sklearn.linear_model import LogisticRegression  # slow import

    matrix, roles, weights = _rows(examples)
    full = np.zeros((FEATURE_COUNT, len(ROLES)), np.float32)
    bias = np.full(len(ROLES), _ABSENT_ROLE_INTERCEPT, np.float32)
    if len(np.unique(roles)) == 1:
        bias[roles[0]] = 0.0
        return RoleClassifier(full, bias, hyperparameters.rules_share)
    used = _features_of_several_skills(examples)
    model = LogisticRegression(C=hyperparameters.regularisation, max_iter=_MAX_ITERATIONS)
    model.fit(matrix[:, used], roles, sample_weight=weights)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        # For two classes scikit-learn has a single coefficient vector.
        coefficients = np.vstack([-coefficients / 2, coefficients / 2])
        intercepts = np.concatenate([-intercepts / 2, intercepts / 2])
    full[np.ix_(used, model.classes_)] = coefficients.T
    bias[model.classes_] = intercepts
    return RoleClassifier(full, bias, hyperparameters.rules_share)


def _features_of_several_skills(examples: Sequence[Example]) -> npt.NDArray[np.int64]:
    """Return the features that at least two skills have; other features do not generalise."""
    skills = np.zeros(FEATURE_COUNT, np.int64)
    for example in examples:
        skills[np.unique(example.features.places)] += 1
    return np.flatnonzero(skills >= min(2, len(examples)))


def _rows(examples: Sequence[Example]) -> tuple[Any, npt.NDArray[np.int64], Counts]:
    from scipy.sparse import csr_matrix, vstack  # slow import

    rows, roles, weights = [], [], []
    for example in examples:
        features = example.features
        matrix = csr_matrix(
            (features.values, features.places, features.starts),
            shape=(len(example.blocks), FEATURE_COUNT),
        )
        block, role = np.nonzero(example.counts)
        rows.append(matrix[block])
        roles.append(role)
        lines = example.counts.sum(axis=1)[block]
        weights.append(example.counts[block, role] / np.sqrt(lines))
    role, weight = np.concatenate(roles), np.concatenate(weights)
    share = np.bincount(role, weights=weight, minlength=len(ROLES))
    balance = np.sqrt(share.sum() / len(ROLES) / np.maximum(share, 1e-9))
    return vstack(rows, format="csr"), role, weight * balance[role]


def confusion_matrix(example: Example, by_features: Probabilities, share: float) -> Counts:
    """Return the lines of a skill by labelled and predicted role, (6, 6)."""
    confusion = np.zeros((len(ROLES), len(ROLES)))
    np.add.at(confusion.T, predict_places(example, by_features, share), example.counts)
    return confusion


def predict_places(
    example: Example, by_features: Probabilities, share: float
) -> npt.NDArray[np.int64]:
    """Return the index in ROLES of the role of each passage, (passages,)."""
    blended = blend_probabilities(example.blocks, example.predictions, by_features, share)
    return np.asarray(blended.argmax(axis=1), np.int64)
