"""Indicators of campaigns: the list of the package, a further one, and lists that are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import UsageError
from skills.parsing.parse_skill import parse_skill
from skills.record import SiblingFile
from skills.scanner import find_rule, scan_lines
from skills.scanner.indicators import Indicators, parse_indicators, use_additional_indicators
from tasks.ingest.preparation.campaign_indicators import load_indicators

LIST = {
    "updated": "2026-03-01",
    "campaigns": {
        "Made up": {
            "source": "a report",
            "hosts": ["bad.example.net"],
            "names": ["helper-core.zip"],
            "sha256": ["AB" * 32],
        }
    },
}


@pytest.fixture(autouse=True)
def no_list_stays() -> Iterator[None]:
    yield
    load_indicators.cache_clear()
    use_additional_indicators(Indicators("", {}, {}))


def rules(text: str) -> set[str]:
    found = map(find_rule, scan_lines(["# A", "", text], 1))
    return {rule.id for rule in found if rule}


def write(folder: Path, content: Any) -> str:
    path = folder / "indicators.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_the_list_of_the_package_is_used() -> None:
    assert "campaign-indicator" in rules("Beacons go to 91.92.242.30 in the night.")
    assert "campaign-indicator" not in rules("Version 191.92.242.30 of it.")


def test_a_further_list_counts_from_when_it_is_loaded(tmp_path: Path) -> None:
    text = "See https://sub.BAD.example.net/x and get helper-core.zip."
    assert "campaign-indicator" not in rules(text)
    load_indicators(write(tmp_path, LIST))
    assert "campaign-indicator" in rules(text)
    assert "campaign-indicator" not in rules("not-bad.example.network")
    file = SiblingFile("x.dat", 3, "ab" * 32)
    parsed = parse_skill("a", b"# A\n\nText.\n", [file], file_contents={})
    assert [(one.level, one.file) for one in parsed.record.safety] == [(3, "x.dat")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object"),
        ({"campaigns": {}}, "updated"),
        ({"updated": "today", "campaigns": {}}, "a date"),
        ({"updated": "2026-01-01", "campaigns": {"a": {"urls": []}}}, "expected lists of hosts"),
        ({"updated": "2026-01-01", "campaigns": {"a": {"hosts": ["x"]}}}, "5 characters"),
        ({"updated": "2026-01-01", "campaigns": {"a": []}}, "expected lists"),
    ],
)
def test_a_list_that_is_none_says_what_is_wrong(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_indicators(content)
    with pytest.raises(UsageError, match=r"policy\.indicators.*" + message):
        load_indicators(write(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        load_indicators(str(tmp_path / "nowhere.json"))
