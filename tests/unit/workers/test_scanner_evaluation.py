"""`eval scanner`: counts by kind and by rule, what a rule alone finds, and bad corpora."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from config.errors import UsageError
from config.settings import LimitSettings
from workers.cli.program import cli
from workers.evaluation.scanner import scan_corpus, scanner_report

LIMITS = LimitSettings()


def write(root: Path, path: str, text: str) -> None:
    folder = root / path
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"# Title\n\n{text}\n", encoding="utf-8")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write(tmp_path, "malicious/wipe/one", "sudo rm -rf /")
    write(tmp_path, "malicious/wipe/two", "sudo rm -rf / && chmod 4755 /opt/tool")
    write(tmp_path, "malicious/plain", "A very bad thing.")
    write(tmp_path, "benign/docs/three", "rm -rf build")
    write(tmp_path, "benign/four", "chmod 4755 /opt/tool")
    write(tmp_path, "benign/four/inner", "sudo rm -rf /")
    write(tmp_path, "benign/four/01-EXAMPLES", "sudo rm -rf /")
    (tmp_path / "benign" / "empty").mkdir()
    (tmp_path / "benign" / "empty" / "SKILL.md").write_text("")
    return tmp_path


def test_the_report_counts_by_kind_and_by_rule(corpus: Path) -> None:
    report = scanner_report(scan_corpus(corpus, LIMITS), 2, ablate=True)
    assert (report["malicious"], report["found"]) == (3, 2)
    assert (report["benign"], report["false"]) == (2, 1)
    assert list(report["unreadable"]) == ["benign/empty"]
    assert report["kinds"]["malicious"] == {
        "-": {"skills": 1, "flagged": 0},
        "wipe": {"skills": 2, "flagged": 2},
    }
    assert report["rules"] == {
        "deletes-system": {"found": 2, "found_only": 1, "false": 0, "false_only": 0},
        "lasting-access": {"found": 1, "found_only": 0, "false": 1, "false_only": 1},
    }
    assert report["missed"] == ["malicious/plain"]
    assert report["false_alarms"] == ["benign/four"]


def test_the_level_counts(corpus: Path) -> None:
    report = scanner_report(scan_corpus(corpus, LIMITS), 3, ablate=False)
    assert (report["found"], report["false"]) == (2, 0)
    assert report["rules"]["lasting-access"] == {"found": 0, "false": 0}


def test_odd_names_and_a_folder_in_place_of_the_file(corpus: Path) -> None:
    write(corpus, os.fsdecode(b"benign/caf\xe9/five"), "sudo rm -rf /")
    for folder in (b"folder", b"fold\xe9r"):
        (corpus / "benign" / os.fsdecode(folder) / "SKILL.md").mkdir(parents=True)
    report = scanner_report(scan_corpus(corpus, LIMITS), 2, ablate=False)
    assert "benign/caf\\xe9/five" in report["false_alarms"]
    assert "caf\\xe9" in report["kinds"]["benign"]
    assert "not a regular file" in report["unreadable"]["benign/folder"]
    json.dumps(report, ensure_ascii=False).encode()


def test_a_corpus_without_a_label_or_a_skill_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder malicious"):
        scan_corpus(tmp_path, LIMITS)
    write(tmp_path, "malicious/one", "text")
    with pytest.raises(UsageError, match="no folder benign"):
        scan_corpus(tmp_path, LIMITS)
    (tmp_path / "benign").mkdir()
    with pytest.raises(UsageError, match="has no skill"):
        scan_corpus(tmp_path, LIMITS)


def test_the_command_prints_the_report_and_writes_it(corpus: Path) -> None:
    words = ["--home", str(corpus / "home"), "eval", "scanner", str(corpus)]
    shown = CliRunner().invoke(cli, [*words, "--ablate"]).stdout
    for line in ("found 2 of 3 malicious: 0.667", "false 1 of 2 benign:", "deletes-system  2"):
        assert line in shown
    out = corpus / "report.json"
    printed = CliRunner().invoke(cli, [*words, "--out", str(out), "--json"]).stdout
    assert json.loads(printed) == json.loads(out.read_text())
