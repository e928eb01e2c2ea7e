"""Training of the role classifier on labelled lines, judged by leaving out one skill at a time.

Each passage counts by the root of its lines, so that a long block does not drown the rest, and
each role by the inverse root of its share, so that rare roles are learnt. Strength and the share
of the rules are chosen by cross-validation over skills, inside each round of the judgement too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import UsageError
from skills.record import ParsedSkill
from skills.roles.classifier import ROLES, Probabilities, RoleClassifier, blend_probabilities
from skills.roles.features import FEATURE_COUNT, Features, extract_features
from skills.roles.passage_context import PassageContext, build_passage_contexts
from skills.roles.rules import RolePrediction, classify_by_rules

REGULARISATIONS = (0.1, 0.3)
"""Inverse regularisation to choose from (scikit-learn's C)."""

RULES_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of the rules to choose from; at half, they decide alone wherever they speak."""

FOLDS = 4
"""Groups of skills in a choice inside the judgement; the last choice leaves out one at a time."""

MIN_SKILLS = 3

_ROUNDS = 500

Ranges = Sequence[tuple[int, int, str]]
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled skill: its blocks, what rules and features say of them, and `counts`
    (blocks, 6), the lines of each block by labelled role."""

    skill_id: str
    blocks: list[PassageContext]
    predictions: list[RolePrediction]
    features: Features
    counts: Counts


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What cross-validation chose."""

    strength: float
    share: float


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A classifier, what was chosen for it, and lines by labelled and given role, (6, 6): of the
    whole, of the rules alone and of the features alone, each on skills left out."""

    classifier: RoleClassifier
    hyperparameters: Hyperparameters
    confusions: dict[str, Counts]
    per_skill: dict[str, float]


def make_example(skill_id: str, parsed: ParsedSkill, ranges: Ranges) -> Example:
    """An example from the labelled line ranges of a skill; lines with other marks are left out.

    Raises UsageError for a range outside the file.
    """
    roles = {role.value: place for place, role in enumerate(ROLES)}
    labels: dict[int, int] = {}
    for first, last, role in ranges:
        if not 1 <= first <= last <= len(parsed.lines):
            raise UsageError(
                f"{skill_id}: lines {first} to {last} are labelled, the file has "
                f"{len(parsed.lines)}; labels and file do not belong together"
            )
        if role in roles:
            labels |= dict.fromkeys(range(first, last + 1), roles[role])
    counts = np.zeros((len(parsed.passages), len(ROLES)))
    for passage, following in _with_next(parsed):
        for line in range(passage.first_line, following):
            if line in labels:
                counts[passage.index, labels[line]] += 1
    blocks = build_passage_contexts(parsed.lines, parsed.sections, parsed.passages)
    return Example(skill_id, blocks, classify_by_rules(blocks), extract_features(blocks), counts)


def _with_next(parsed: ParsedSkill) -> Iterator[tuple[Any, int]]:
    """Each passage and the line after it; blank lines up to the next of its section go with it."""
    for passage, following in zip(parsed.passages, [*parsed.passages[1:], None], strict=True):
        same = following is not None and following.section == passage.section
        yield passage, following.first_line if same and following else passage.last_line + 1


def train_roles(
    examples: Sequence[Example], progress: Callable[[int, int], None]
) -> TrainingResult:
    """Judge by leaving out one skill at a time, then choose and fit on all.

    `progress` hears how many of how many fits are done. Raises UsageError for fewer than
    LEAST_SKILLS skills with labels, or fewer than two roles.
    """
    ordered = sorted(examples, key=lambda example: example.skill_id)
    kept = [example for example in ordered if example.counts.any()]
    if len(kept) < MIN_SKILLS:
        raise UsageError(
            f"{len(kept)} skills have labelled passages; training needs at least {MIN_SKILLS}, "
            "since each is judged by the others"
        )
    if np.count_nonzero(sum(example.counts.sum(axis=0) for example in kept)) < 2:
        raise UsageError("all labelled lines have one role; label lines of at least two")
    folds = min(FOLDS, len(kept) - 1)
    rounds = len(kept) * (folds * len(REGULARISATIONS) + 1) + len(kept) * len(REGULARISATIONS) + 1
    fits = _FitCounter(progress, rounds)
    confusions = {name: np.zeros((len(ROLES), len(ROLES))) for name in ("all", "rules", "features")}
    per_skill: dict[str, float] = {}
    for held in kept:
        rest = [example for example in kept if example is not held]
        hyperparameters = select_hyperparameters(rest, folds, fits)
        given = fits.fit(rest, hyperparameters).predict_probabilities(held.blocks)
        for name, share in (("all", hyperparameters.share), ("rules", 1.0), ("features", 0.0)):
            confusion = confusion_matrix(held, given, share)
            confusions[name] += confusion
            if name == "all":
                per_skill[held.skill_id] = float(np.trace(confusion) / confusion.sum())
    hyperparameters = select_hyperparameters(kept, len(kept), fits)
    return TrainingResult(fits.fit(kept, hyperparameters), hyperparameters, confusions, per_skill)


def select_hyperparameters(
    examples: Sequence[Example], folds: int, fits: _FitCounter
) -> Hyperparameters:
    """Strength and share of the rules with the best mean of accuracy and macro-F1 on groups of
    skills left out; the first of equals."""
    groups = [list(examples[start::folds]) for start in range(folds)]
    worth: dict[Hyperparameters, float] = {}
    for strength in REGULARISATIONS:
        confusions = {share: np.zeros((len(ROLES), len(ROLES))) for share in RULES_SHARES}
        for group in groups:
            rest = [example for example in examples if all(example is not one for one in group)]
            model = fits.fit(rest, Hyperparameters(strength, 0.0))
            for held in group:
                given = model.predict_probabilities(held.blocks)
                for share in RULES_SHARES:
                    confusions[share] += confusion_matrix(held, given, share)
        for share, confusion in confusions.items():
            worth[Hyperparameters(strength, share)] = sum(accuracy_and_macro_f1(confusion)) / 2
    return max(worth, key=lambda hyperparameters: worth[hyperparameters])


class _FitCounter:
    """Fits classifiers and says how many are done."""

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def fit(self, examples: Sequence[Example], hyperparameters: Hyperparameters) -> RoleClassifier:
        """A classifier of some examples; roles that none of them has get probability 0."""
        self._done += 1
        self._progress(self._done, self._total)
        return fit(examples, hyperparameters)


def fit(examples: Sequence[Example], hyperparameters: Hyperparameters) -> RoleClassifier:
    """Multinomial logistic regression over the examples' passages, one row a labelled role.

    Where all of them have one role, that role is all there is to learn.
    """
    from sklearn.linear_model import LogisticRegression

    matrix, roles, weights = _rows(examples)
    full = np.zeros((FEATURE_COUNT, len(ROLES)), np.float32)
    bias = np.full(len(ROLES), _ABSENT_ROLE_INTERCEPT, np.float32)
    if len(np.unique(roles)) == 1:
        bias[roles[0]] = 0.0
        return RoleClassifier(full, bias, hyperparameters.share)
    used = _features_of_several_skills(examples)
    model = LogisticRegression(C=hyperparameters.strength, max_iter=_ROUNDS)
    model.fit(matrix[:, used], roles, sample_weight=weights)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        # scikit-learn keeps one vector for two classes
        coefficients = np.vstack([-coefficients / 2, coefficients / 2])
        intercepts = np.concatenate([-intercepts / 2, intercepts / 2])
    full[np.ix_(used, model.classes_)] = coefficients.T
    bias[model.classes_] = intercepts
    return RoleClassifier(full, bias, hyperparameters.share)


_ABSENT_ROLE_INTERCEPT = -30.0
"""The intercept of a role without labels: never likely, and no infinity in the file."""


def _features_of_several_skills(examples: Sequence[Example]) -> npt.NDArray[np.int64]:
    """Features of at least two skills: what only one has says nothing about others."""
    skills = np.zeros(FEATURE_COUNT, np.int64)
    for example in examples:
        skills[np.unique(example.features.places)] += 1
    return np.flatnonzero(skills >= min(2, len(examples)))


def _rows(examples: Sequence[Example]) -> tuple[Any, npt.NDArray[np.int64], Counts]:
    from scipy.sparse import csr_matrix, vstack

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
    """Lines of a skill by labelled and given role, (6, 6)."""
    given = blend_probabilities(example.blocks, example.predictions, by_features, share).argmax(
        axis=1
    )
    confusion = np.zeros((len(ROLES), len(ROLES)))
    np.add.at(confusion.T, given, example.counts)
    return confusion


def accuracy_and_macro_f1(confusion: Counts) -> tuple[float, float]:
    """Accuracy over lines and macro-F1 over the six roles, as `eval roles` has it."""
    right = np.diagonal(confusion)
    sums = confusion.sum(axis=0) + confusion.sum(axis=1)
    f1 = 2 * right / np.maximum(sums, 1e-9)
    return float(right.sum() / max(1.0, confusion.sum())), float(f1.sum() / len(ROLES))
