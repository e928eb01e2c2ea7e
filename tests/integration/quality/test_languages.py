"""Skills in a language that the encoder does not know: found by words, never embedded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skills.events import QueryAsked, SourceChanged
from tests.support.samples.tiny import TinyEncoder, settle, tiny_backend

ENGLISH = """---
name: kiln-log
description: Keep the log of a pottery kiln.
---
# Kiln log

Write down each firing, its cones and its temperature.
"""
CHINESE = """---
name: yaolu-jilu
description: 记录陶窑每次烧制的温度和时间。
---
# 陶窑记录

每次烧制以后写下温度、时间和釉料的结果。
"""


def test_only_languages_that_the_encoder_knows_are_embedded(tmp_path: Path) -> None:
    root = tmp_path / "pottery"
    for name, text in (("kiln-log", ENGLISH), ("yaolu-jilu", CHINESE)):
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(text, encoding="utf-8")
    seen: list[str] = []

    def remember(texts: Sequence[str]) -> None:
        seen.extend(texts)

    with tiny_backend(tmp_path / "home", TinyEncoder(remember)) as backend:
        backend.submit(SourceChanged(source_id="pottery", root=str(root)), "test")
        settle(backend)
        assert backend.get_progress()["embedded"] == 2
        assert any("firing" in text for text in seen)
        assert not any("烧制" in text for text in seen)
        answer = backend.answer_query(QueryAsked(task="记录烧制温度"), "test")
        assert [skill["skill_id"] for skill in answer["skills"]] == ["pottery:yaolu-jilu"]
        assert answer["degraded"] == []
