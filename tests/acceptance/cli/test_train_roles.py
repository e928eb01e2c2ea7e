"""`skillbus train roles` on small skills made up here, and scoring what it made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.roles import write_labelled


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_labelled(tmp_path_factory.mktemp("made"))


@dataclass(frozen=True)
class Trained:
    """Weights with their card, the roles of skills left out, and what the command reported."""

    weights: Path
    predictions: Path
    report: dict[str, Any]


@pytest.fixture(scope="module")
def trained(
    fork_server: ForkServer, made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    folder, labels = made
    base = tmp_path_factory.mktemp("trained")
    out, predictions = base / "roles.npz", base / "predicted.json"
    args = ("train", "roles", str(labels), "--skills", f"made={folder}", "--origin", "made up")
    files = ("--out", str(out), "--predictions", str(predictions))
    report = Skillbus(fork_server, base / "home")(*args, *files, "--json").data
    return Trained(out, predictions, report)


def test_from_folders_to_weights_with_a_card(trained: Trained) -> None:
    card = json.loads(trained.weights.with_suffix(".json").read_text(encoding="utf-8"))
    assert card["origin"] == "made up"
    assert card["left_out"]["all"]["accuracy"] > 0.9
    assert {name: trained.report[name] for name in card} == card
    assert len(trained.report["per_skill"]) == 6


def test_from_the_library_and_scored_by_it(
    skillbus: Skillbus, made: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = made
    skillbus("sync", str(folder), "--source", "made", "--until", "searchable")
    out = tmp_path / "roles.npz"
    said = skillbus("train", "roles", str(labels), "--out", str(out)).out
    assert "on skills left out" in said
    ids = ",".join(json.loads(labels.read_text(encoding="utf-8")))
    scored = skillbus(
        "eval", "roles", "--skills", ids, "--gold", str(labels), "--weights", str(out), "--json"
    )
    assert scored.data["accuracy"] > 0.9
    args = ("eval", "roles", "--gold", str(labels), "--weights", str(out), "--json", "--skills")
    scored = skillbus(*args, "made:tides")
    assert scored.data["accuracy"] > 0.9, "skills that are not named do not count"
    beyond = tmp_path / "beyond.json"
    beyond.write_text('{"made:tides": [[2, 1000000000000, "procedure"]]}', encoding="utf-8")
    wrong = ("eval", "roles", "--skills", "made:tides", "--gold", str(beyond))
    assert "made:tides: [2, 1000000000000] is not a line range" in skillbus(*wrong, code=2).err
    passages = skillbus("skills", "show", "made:tides", "--json").data["passages"]
    assert all(0 < passage["confidence"] <= 1 for passage in passages)


def test_roles_of_skills_left_out_are_written(made: tuple[Path, Path], trained: Trained) -> None:
    accuracy = trained.report["per_skill"]
    gold = json.loads(made[1].read_text(encoding="utf-8"))
    given = json.loads(trained.predictions.read_text(encoding="utf-8"))
    assert set(given) == set(gold)
    for name, ranges in gold.items():
        found = {n: role for first, last, role in given[name] for n in range(first, last + 1)}
        lines = [(n, role) for first, last, role in ranges for n in range(first, last + 1)]
        labelled = [(n, role) for n, role in lines if role not in ("heading", "frontmatter")]
        right = sum(found[n] == role for n, role in labelled)
        assert right / len(labelled) == pytest.approx(accuracy[name])


def test_weights_that_are_none_are_refused(skillbus: Skillbus, made: tuple[Path, Path]) -> None:
    _, labels = made
    args = ("eval", "roles", "--skills", "made:tides", "--weights", str(labels))
    assert "train them with `skillbus train roles`" in skillbus(*args, code=1).err


def test_own_weights_count_for_what_is_taken_in(
    skillbus: Skillbus, made: tuple[Path, Path], trained: Trained
) -> None:
    folder, labels = made
    skillbus.env["SKILLBUS_ROLES__WEIGHTS"] = str(trained.weights)
    skillbus("sync", str(folder), "--source", "made", "--until", "searchable")
    ids = ",".join(json.loads(labels.read_text(encoding="utf-8")))
    scored = skillbus("eval", "roles", "--skills", ids, "--gold", str(labels), "--json")
    assert scored.data["accuracy"] > 0.9


def test_weights_of_the_settings_that_are_not_there_stop_the_start(
    skillbus: Skillbus, made: tuple[Path, Path], tmp_path: Path
) -> None:
    skillbus.env["SKILLBUS_ROLES__WEIGHTS"] = str(tmp_path / "none.npz")
    result = skillbus("sync", str(made[0]), "--source", "made", code=2)
    assert "roles.weights: " in result.err
    assert "cannot be read" in result.err
