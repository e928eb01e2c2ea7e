from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from config.errors import MisconfiguredError, UsageError
from search.scoring.ranker_factors import PARTS, dump_factors, load_factors, read_factors
from workers.cli.training.ranker import _report
from workers.training.ranker_training import (
    RankedPrompt,
    RankerTraining,
    fit_factors,
    measure,
    train_ranker,
)

TEXT, DESCRIPTION = PARTS.index("bm25f"), PARTS.index("description")


def prompts(informative: bool, count: int = 60) -> list[RankedPrompt]:
    """Prompts whose needed skill has noise in its text and, if informative, a description."""
    random = np.random.default_rng(3)
    made = []
    for number in range(count):
        parts = np.zeros((12, len(PARTS)))
        parts[:, TEXT] = random.normal(size=12)
        parts[:, DESCRIPTION] = random.normal(size=12) * 0.2
        needed = np.zeros(12, dtype=np.bool_)
        needed[number % 12] = True
        if informative:
            parts[needed, DESCRIPTION] += 0.6
        else:
            parts[needed, TEXT] += 1.5
            parts[needed, DESCRIPTION] += 0.06
        made.append(RankedPrompt(f"s:{number // 2}", parts, needed))
    return made


@pytest.fixture(scope="module")
def weighted() -> list[RankedPrompt]:
    """Informative prompts of weights 1 to 3."""
    return [replace(one, weight=1.0 + place % 3) for place, one in enumerate(prompts(True))]


@pytest.fixture(scope="module")
def trained(weighted: list[RankedPrompt]) -> RankerTraining:
    return train_ranker(weighted)


def test_a_part_that_tells_right_from_wrong_counts_more(trained: RankerTraining) -> None:
    assert trained.wins
    assert trained.factors["description"] > 2 * trained.factors["bm25f"]
    assert min(trained.factors.values()) >= 0
    assert trained.learnt[:, 1].mean() > trained.shipped[:, 1].mean()
    assert trained.least_gain < trained.gain


def test_without_a_gain_on_left_out_prompts_nothing_wins() -> None:
    assert not train_ranker(prompts(informative=False)).wins


def test_a_large_penalty_keeps_the_shipped_weights() -> None:
    assert fit_factors(prompts(informative=True), 1e6) == pytest.approx(
        np.ones(len(PARTS)), abs=1e-3
    )


def test_ties_count_as_behind() -> None:
    tied = RankedPrompt("s:1", np.ones((3, len(PARTS))), np.array([False, True, False]))
    assert measure(tied, np.ones(len(PARTS))) == (0.0, 1 / 3)


def test_too_few_skills_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 10"):
        train_ranker(prompts(informative=True, count=8))


def test_factors_are_read_as_written() -> None:
    factors = {name: 1.0 + place / 8 for place, name in enumerate(PARTS)}
    assert read_factors(dump_factors(factors)) == factors


VALID = dump_factors(dict.fromkeys(PARTS, 1.0))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"[]", "no `factors`"),
        (b'{"format": 1}', "no `factors`"),
        (VALID.replace(b'"format": 1', b'"format": 2'), "format is 2"),
        (VALID.replace(b'"dense": 1.0', b'"dense": NaN'), "dense is nan"),
        (VALID.replace(b'"dense": 1.0', b'"dense": "1"'), "dense is '1'"),
        (VALID.replace(b'"dense"', b'"dance"'), "dense is None"),
        (dump_factors(dict.fromkeys(PARTS, -1.0)), "is -1.0"),
    ],
)
def test_invalid_factors_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "ranker.json"
    file.write_bytes(content)
    with pytest.raises(MisconfiguredError, match=re.escape(reason)) as refused:
        load_factors(str(file))
    assert str(file) in str(refused.value)
    assert "skillbus train ranker" in str(refused.value)


def test_a_missing_file_of_factors_is_named(tmp_path: Path) -> None:
    with pytest.raises(MisconfiguredError, match="No such file"):
        load_factors(str(tmp_path / "none.json"))
    with pytest.raises(MisconfiguredError, match="~no-such-user"):
        load_factors("~no-such-user/none.json")


def test_means_of_the_report_count_prompts_by_their_weight(
    weighted: list[RankedPrompt], trained: RankerTraining
) -> None:
    left_out = _report(trained, 70, [one.weight for one in weighted])["left_out"]
    gain = left_out["learnt"]["mrr"] - left_out["shipped"]["mrr"]
    assert gain == pytest.approx(left_out["mrr_gain"], abs=2e-4)
