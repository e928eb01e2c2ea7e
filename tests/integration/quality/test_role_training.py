"""Training of roles on small skills made up here: figures, choice, determinism, bad cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from config.errors import UsageError
from skills.parsing.parse_skill import parse_skill
from skills.roles.classifier import dump_weights
from tests.support.samples.roles import write_labelled
from workers.evaluation.metrics import accuracy_and_macro_f1
from workers.library.user_files import write_atomically
from workers.training.roles.labels import read_labels, read_skills
from workers.training.roles.model_card import make_model_card
from workers.training.roles.role_training import (
    Example,
    Hyperparameters,
    TrainingResult,
    confusion_matrix,
    fit,
    make_example,
    train_roles,
)


def read_examples(folder: Path) -> list[Example]:
    skills, file = write_labelled(folder)
    labels = read_labels([file])
    parsed = read_skills(sorted(labels), {"made": skills})
    return [make_example(name, parsed[name], labels[name]) for name in sorted(labels)]


@pytest.fixture
def examples(tmp_path: Path) -> list[Example]:
    return read_examples(tmp_path)


STEPS: list[tuple[int, int]] = []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A training on all examples, whose progress is in STEPS."""
    examples = read_examples(tmp_path_factory.mktemp("trained"))
    return train_roles(examples, lambda done, total: STEPS.append((done, total)))


def ignore_progress(done: int, total: int) -> None:
    assert 0 < done <= total


def test_each_skill_is_judged_by_the_others(
    examples: list[Example], trained: TrainingResult
) -> None:
    assert set(trained.per_skill) == {example.skill_id for example in examples}
    lines = sum(example.counts.sum() for example in examples)
    for confusion in trained.confusions.values():
        assert confusion.sum() == lines
    assert accuracy_and_macro_f1(trained.confusions["all"])[0] > 0.9
    assert [done for done, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert STEPS[-1] == (len(STEPS), len(STEPS))


def test_the_same_data_in_any_order_makes_the_same_weights(
    examples: list[Example], trained: TrainingResult
) -> None:
    other = train_roles(examples[::-1], ignore_progress)
    assert dump_weights(trained.classifier) == dump_weights(other.classifier)
    assert trained.hyperparameters == other.hyperparameters


def test_a_card_tells_figures_and_no_text(examples: list[Example], trained: TrainingResult) -> None:
    card = make_model_card(trained, examples, [Path("a/labels.json")], "made up")
    assert card["command"] == "skillbus train roles labels.json"
    assert card["skills"] == len(examples)
    assert sum(card["lines"].values()) == np.sum(card["confusion"])
    assert "tides" not in json.dumps(card)


def test_two_roles_are_enough(examples: list[Example]) -> None:
    for example in examples:
        example.counts[:, 2:] = 0
    classifier = fit(examples, Hyperparameters(1.0, 0.0))
    given = classifier.predict_probabilities(examples[0].blocks)
    assert given[:, 2:].max() < 1e-6
    confusion = confusion_matrix(examples[0], given, 0.0)
    assert np.trace(confusion) == confusion.sum() > 0


def test_a_role_without_labels_is_not_given(examples: list[Example]) -> None:
    for example in examples:
        example.counts[:, 1] = 0
    given = fit(examples, Hyperparameters(1.0, 0.0)).predict_probabilities(examples[0].blocks)
    assert given[:, 1].max() < 1e-6


def test_a_role_of_one_skill_alone_is_unknown_where_that_skill_is_left_out(
    examples: list[Example],
) -> None:
    for example in examples[1:]:
        example.counts[:, 1:] = 0
    assert train_roles(examples, ignore_progress).confusions["all"].sum() > 0
    given = fit(examples[1:], Hyperparameters(1.0, 0.0)).predict_probabilities(examples[0].blocks)
    assert given[:, 0].min() > 1 - 1e-6


def test_one_role_alone_teaches_nothing(examples: list[Example]) -> None:
    for example in examples:
        example.counts[:, 1:] = 0
    with pytest.raises(UsageError, match="all labelled lines have one role"):
        train_roles(examples, ignore_progress)


def test_too_few_skills_with_labels_are_refused(examples: list[Example]) -> None:
    for example in examples[2:]:
        example.counts[:] = 0
    with pytest.raises(UsageError, match="label lines of at least 3 skills"):
        train_roles(examples, ignore_progress)


def test_marks_that_are_no_roles_are_not_counted() -> None:
    parsed = parse_skill("x", b"# Title\n\nSome text.\n\nMore text.")
    example = make_example("a:x", parsed, [(1, 1, "heading"), (3, 3, "concept"), (5, 5, "other")])
    assert example.counts.sum() == 1


def test_labels_beyond_the_file_do_not_belong_to_it() -> None:
    parsed = parse_skill("x", b"# Title\n\nSome text.")
    with pytest.raises(UsageError, match="the labels do not match this file"):
        make_example("a:x", parsed, [(3, 9, "concept")])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "expected a JSON object: skill id"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "no labels"),
        ('{"a:b": 3}', "is not a labelled range"),
        ('{"a:b": [[1, 2]]}', "is not a labelled range"),
        ('{"a:b": [["1", 2, "step"]]}', "is not a labelled range"),
        ('{"a:b": [[4, 6, "step"], [1, 4, "param"]]}', "a:b: line 4 is in two labelled ranges"),
    ],
)
def test_labels_of_another_shape_are_refused(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "labels.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        read_labels([file])


def test_a_skill_is_labelled_once(tmp_path: Path) -> None:
    _, file = write_labelled(tmp_path)
    with pytest.raises(UsageError, match="already labelled in another file"):
        read_labels([file, file])


@pytest.mark.parametrize(
    ("skill_id", "said"),
    [
        ("other:tides", "--skills other=DIR"),
        ("made:", "is not the id of a skill"),
        ("made:../made/tides", "is not the id of a skill"),
        ("made:moons", "cannot be read"),
    ],
)
def test_a_skill_that_is_not_there_is_named(tmp_path: Path, skill_id: str, said: str) -> None:
    folder, _ = write_labelled(tmp_path)
    with pytest.raises(UsageError, match=said):
        read_skills([skill_id], {"made": folder})


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"one")
    write_atomically(tmp_path / "a", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"two"
    with pytest.raises(UsageError, match="cannot be written"):
        write_atomically(tmp_path / "none" / "a", b"three")
