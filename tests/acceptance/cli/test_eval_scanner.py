"""`skillbus eval scanner` on a corpus of folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.program import ForkServer, Skillbus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = {"malicious/wipes/a": "sudo rm -rf /", "benign/b": "Sort the list."}
    for path, text in texts.items():
        folder = tmp_path / "corpus" / path
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"# Title\n\n{text}\n")
    return tmp_path / "corpus"


def test_a_corpus_is_measured(fork_server: ForkServer, tmp_path: Path, corpus: Path) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home")
    text = skillbus("eval", "scanner", str(corpus), "--ablate").out
    assert "found 1 of 1 malicious: 1.000" in text
    assert "false 0 of 1 benign" in text
    assert "deletes-system" in text
    out = tmp_path / "report.json"
    report = skillbus("eval", "scanner", str(corpus), "--out", str(out), "--json").data
    assert report == json.loads(out.read_text())
    assert report["kinds"]["malicious"] == {"wipes": {"skills": 1, "flagged": 1}}
