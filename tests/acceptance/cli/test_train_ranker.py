"""`skillbus train ranker` on a small library made up here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search.scoring.ranker_factors import PARTS, dump_factors
from tests.support.program.program import ForkServer, Skillbus

TOPICS = [
    *("kiln", "loom", "tide", "glacier", "beehive", "violin"),
    *("orchard", "lantern", "compass", "anvil", "saddle", "quarry"),
]


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    folder = tmp_path_factory.mktemp("made") / "skills"
    for topic in TOPICS:
        (folder / topic).mkdir(parents=True)
        text = (
            f"---\nname: {topic}-care\ndescription: Care of a {topic}.\n---\n# Care\n\nClean it.\n"
        )
        (folder / topic / "SKILL.md").write_text(text, encoding="utf-8")
    program = Skillbus(fork_server, folder.parent / "home")
    program("sync", str(folder), "--source", "made", "--until", "searchable")
    return program


def write_prompts(path: Path) -> Path:
    rows = [{"instruction": f"clean my {t}", "gt_skill_ids": [f"made:{t}"]} for t in TOPICS]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_what_does_not_win_is_not_written(skillbus: Skillbus, tmp_path: Path) -> None:
    out = tmp_path / "ranker.json"
    prompts = write_prompts(tmp_path / "prompts.jsonl")
    result = skillbus("train", "ranker", str(prompts), "--out", str(out), "--json", code=1)
    assert "nothing was written" in result.err
    assert not out.exists()
    assert result.data["left_out"]["shipped"]["hit_at_1"] == 1.0
    assert result.data["with_a_needed_candidate"] == len(TOPICS)


def test_factors_in_force_change_the_parts_that_explain_shows(
    skillbus: Skillbus, tmp_path: Path
) -> None:
    def parts(program: Skillbus) -> dict[str, float]:
        found = program("query", "clean my kiln", "--explain", "--format", "json").data
        first = found["explain"]["candidates"][0]
        assert first["skill_id"] == "made:kiln"
        return dict(first["scores"])

    before = parts(skillbus)
    file = tmp_path / "ranker.json"
    file.write_bytes(dump_factors(dict.fromkeys(PARTS, 1.0) | {"description": 0.5}))
    after = parts(skillbus.with_environment(SKILLBUS_RANKER__WEIGHTS=str(file)))
    assert after["description"] == pytest.approx(before["description"] / 2, abs=1e-3)
    assert after["bm25f"] == before["bm25f"]
